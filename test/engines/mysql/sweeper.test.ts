/** What is swept away in the background stands in nobody's way. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { bytes, Database, poolOf } from '../../../src/engines/mysql/client.js';
import { Sweeper } from '../../../src/engines/mysql/sweeper.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { Stage } from './kit.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

test('for-update: a lock in use is not taken for idle, so no try meets the sweeper at it', async () => {
  await using stage = new Stage(() => server.port);
  const namespace = 'swept';
  const lock = stage.locks({ strategy: 'for-update' }, { namespace }).mutex('job');
  const sweeper = new Sweeper({
    database: new Database(poolOf(stage.pool()), false),
    prefix: 'holdfast_',
    tables: ['mint', 'latch'],
    namespace: bytes(namespace),
    // Again and again, without a pause.
    clock: { ...systemClock, timer: (_ms, run) => systemClock.timer(0, run) },
  });
  let refused = 0;
  for (let round = 0; round < 100; round += 1) {
    await lock.run(() => {});
    // As if its row had been made long ago.
    await sql(server.port, `UPDATE holdfast_latch SET until = until - 60000000 WHERE namespace = '${namespace}'`);
    for (let turn = 0; turn < 5; turn += 1) {
      sweeper.used();
      const lease = await lock.tryAcquire();
      if (lease) await lease.release();
      else refused += 1;
    }
  }
  sweeper.close();
  expect(refused).toBe(0);
});
