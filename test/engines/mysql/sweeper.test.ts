/** What is swept away in the background was in nobody's use, stands in nobody's way, and takes no token with it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { Connections } from '../../../src/engines/mysql/client/connections.js';
import { Database } from '../../../src/engines/mysql/client/database.js';
import { bytes, poolOf } from '../../../src/engines/mysql/client/port.js';
import { Tenure } from '../../../src/engines/mysql/client/tenure.js';
import { MysqlRegisters } from '../../../src/engines/mysql/registers.js';
import { RowSweeper } from '../../../src/engines/mysql/rows/sweeper.js';
import { NOW } from '../../../src/engines/mysql/tables.js';
import type { Holdfast } from '../../../src/index.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Stage } from './kit.js';

let server: Server;
/** The register of the run that counts. */
const COUNTS = 'once\u001Fcounts';

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

/** One that sweeps whenever it is told of a use, without a pause. */
class EagerSweeper implements Disposable {
  readonly #sweeper: RowSweeper;
  /** How many sweeps have begun. Each begins when the one before it has ended. */
  begun = 0;

  constructor(stage: Stage, namespace: string, tables: readonly string[]) {
    const timer: typeof systemClock.timer = (_ms, run) =>
      systemClock.timer(0, () => {
        this.begun += 1;
        run();
      });
    const database = new Database(new Connections(poolOf(stage.pool()), false, new Tenure()));
    const prefix = 'holdfast_';
    this.#sweeper = new RowSweeper({
      database,
      prefix,
      tables,
      registers: new MysqlRegisters(database, namespace, prefix),
      namespace: bytes(namespace),
      clock: { ...systemClock, timer },
    });
  }

  used(): void {
    this.#sweeper.used();
  }

  /** Until one that began after now has ended. */
  async sweep(): Promise<void> {
    const before = this.begun;
    await eventually('it has swept', async () => {
      this.used();
      expect(this.begun).toBeGreaterThan(before + 1);
    });
  }

  [Symbol.dispose](): void {
    this.#sweeper.close();
  }
}

async function namesIn(table: string, namespace: string): Promise<readonly string[]> {
  const rows = await sql(server.port, `SELECT name FROM holdfast_${table} WHERE namespace = '${namespace}' ORDER BY 1`);
  return rows.map(({ name }) => String(name));
}

/** As if a row had been used a minute ago for the last time. */
async function age(table: string, namespace: string, name: string): Promise<void> {
  const where = `namespace = '${namespace}' AND name = '${name}'`;
  await sql(server.port, `UPDATE holdfast_${table} SET until = ${NOW} - 60000000 WHERE ${where}`);
}

describe.each(['row', 'version'] as const)('%s', (strategy) => {
  test('a row that is held is not swept away with those that are idle', async () => {
    await using stage = new Stage(() => server.port);
    const namespace = `held-${strategy}`;
    const [locks, other] = [stage.locks({ strategy }, { namespace }), stage.locks({ strategy }, { namespace })];
    const lease = await locks.mutex('held').acquire();
    await locks.mutex('idle').run(() => {});
    await age(strategy, namespace, 'idle');
    using sweeper = new EagerSweeper(stage, namespace, [strategy]);
    await sweeper.sweep();
    expect(await namesIn(strategy, namespace)).toEqual(['held']);
    expect(await other.mutex('held').tryAcquire()).toBeUndefined();
    expect(await lease.release()).toBe(true);
  });
});

test.each([
  ['row', 'row'],
  ['version', 'version'],
  ['for-update', 'mint'],
  ['get-lock', 'mint'],
] as const)('%s: tokens do not fall when their rows are swept away', async (strategy, table) => {
  await using stage = new Stage(() => server.port);
  const namespace = `tokens-${strategy}`;
  const lock = stage.locks({ strategy }, { namespace }).mutex('job');
  const first = await lock.run(({ token }) => token);
  // As if the clock had been an hour ahead when it was minted.
  await sql(server.port, `UPDATE holdfast_${table} SET token = token + 3600000000 WHERE namespace = '${namespace}'`);
  const second = await lock.run(({ token }) => token);
  expect(second).toBeGreaterThan(first + 3_600_000_000n * 1_024n);
  await age(table, namespace, 'job');
  using sweeper = new EagerSweeper(stage, namespace, [table]);
  await sweeper.sweep();
  expect(await namesIn(table, namespace)).toEqual([]);
  expect(await lock.run(({ token }) => token)).toBeGreaterThan(second);
});

test('for-update: a lock in use is not taken for idle, so no try meets the sweeper at it', async () => {
  await using stage = new Stage(() => server.port);
  const namespace = 'swept';
  const lock = stage.locks({ strategy: 'for-update' }, { namespace }).mutex('job');
  using sweeper = new EagerSweeper(stage, namespace, ['mint', 'latch']);
  await lock.run(() => {});
  // As if its row had been made long ago.
  await age('latch', namespace, 'job');
  let refused = 0;
  while (sweeper.begun < 100) {
    sweeper.used();
    const lease = await lock.tryAcquire();
    if (lease) await lease.release();
    else refused += 1;
  }
  expect(refused).toBe(0);
  const old = `SELECT name FROM holdfast_latch WHERE namespace = '${namespace}' AND until < ${NOW} - 50000000`;
  expect(await sql(server.port, old)).toHaveLength(1);
});

test('for-update: a latch that nobody uses any more is swept away', async () => {
  await using stage = new Stage(() => server.port);
  const namespace = 'unused';
  await stage
    .locks({ strategy: 'for-update' }, { namespace })
    .mutex('job')
    .run(() => {});
  using sweeper = new EagerSweeper(stage, namespace, ['mint', 'latch']);
  for (const table of ['mint', 'latch']) await age(table, namespace, 'job');
  await sweeper.sweep();
  expect([await namesIn('mint', namespace), await namesIn('latch', namespace)]).toEqual([[], []]);
});

/** Two runs: one has to be remembered, one has not. */
async function note(locks: Holdfast, namespace: string): Promise<void> {
  for (const job of ['over', 'counts']) await locks.once(job, { atLeast: '1h' }, () => {});
  const over = `namespace = '${namespace}' AND name LIKE '%over'`;
  await sql(server.port, `UPDATE holdfast_register SET kept_until = kept_until - 3601000000 WHERE ${over}`);
}

describe('what once has noted goes when its time is over', () => {
  test('queue: with a beat', async () => {
    await using stage = new Stage(() => server.port);
    await stage.locks({}).ready();
    await note(stage.locks({}, { namespace: 'beat', ttl: '2s' }), 'beat');
    await eventually('it is gone', async () => expect(await namesIn('register', 'beat')).toEqual([COUNTS]));
  });

  test('row: when rows are swept away', async () => {
    await using stage = new Stage(() => server.port);
    await note(stage.locks({ strategy: 'row' }, { namespace: 'swept-once' }), 'swept-once');
    using sweeper = new EagerSweeper(stage, 'swept-once', ['row']);
    await sweeper.sweep();
    expect(await namesIn('register', 'swept-once')).toEqual([COUNTS]);
  });
});
