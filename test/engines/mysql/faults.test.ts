import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EngineError } from '../../../src/index.js';
import { CLOCK_SHIM_NEEDS, type ClockShim, clockShim } from '../../servers/clock-shim.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Stage, STRATEGIES } from './kit.js';

let server: Server;
let clock: ClockShim | undefined;

beforeEach(async () => {
  clock = await clockShim();
  server = await startMariadb(clock ? { env: clock.env } : {});
  // To make the tables takes longer than a third of a short ttl.
  await using stage = new Stage(() => server.port);
  await stage.byUrl('').ready();
});
afterEach(async () => {
  await server.stop();
  clock?.[Symbol.dispose]();
});

const PINNED = STRATEGIES.filter((strategy) => strategy === 'for-update' || strategy === 'get-lock');

async function killAll(): Promise<void> {
  const rows = await sql(server.port, 'SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()');
  for (const { id } of rows) await sql(server.port, `KILL CONNECTION ${id}`).catch(() => {});
}

describe.each(STRATEGIES)('%s', (strategy) => {
  test('after a crash and a restart of the server locks go on, and tokens grow', async () => {
    await using stage = new Stage(() => server.port);
    const locks = stage.byUrl(`strategy=${strategy}`, { ttl: '3s' });
    const before = await locks.mutex('job').run(async ({ token }) => token);
    await server.kill();
    await server.restart();
    const after = await locks.mutex('job').run({ timeout: '30s' }, async ({ token }) => token);
    expect(after).toBeGreaterThan(before);
  });

  test('a server that hangs is not waited for: the lease is lost in time, and all is well when it goes on', async () => {
    await using stage = new Stage(() => server.port);
    const locks = stage.byUrl(`strategy=${strategy}`, { ttl: '3s' });
    const lease = await locks.mutex('job').acquire();
    await server.pause();
    await eventually('the lease is lost', async () => expect(lease.held).toBe(false));
    const next = locks.mutex('job').acquire({ timeout: '30s' });
    server.resume();
    await (await next).release();
  });

  test('a silent link: the lock is free for others after the ttl', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using stage = new Stage(() => server.port);
    const silent = stage.byUrl(`strategy=${strategy}`, { ttl: '3s' }, proxy.port);
    const other = stage.byUrl(`strategy=${strategy}`, { ttl: '3s' });
    const lease = await silent.mutex('job').acquire();
    proxy.set({ mode: 'freeze' });
    const next = await other.mutex('job').acquire({ timeout: '30s' });
    expect(lease.held).toBe(false);
    expect(next.token).toBeGreaterThan(lease.token);
    proxy.heal();
    await next.release();
  });

  test('tokens grow though the clock of the database is set back', async ({ skip }) => {
    if (!clock) return skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using stage = new Stage(() => server.port);
    const locks = stage.byUrl(`strategy=${strategy}`, { ttl: '3s' });
    const before = await locks.mutex('job').run(async ({ token }) => token);
    clock.jumpWall(-3_600_000);
    const after = await locks.mutex('job').run({ timeout: '30s' }, async ({ token }) => token);
    expect(after).toBeGreaterThan(before);
    return undefined;
  });

  test('a pool without a free connection is an error that says so', async () => {
    await using stage = new Stage(() => server.port);
    const pool = stage.pool({ connectionLimit: 2 });
    const locks = stage.locks({ strategy }, { ttl: '3s' }, pool);
    await locks.mutex('job').run(() => {});
    const taken = await Promise.all([pool.promise().getConnection(), pool.promise().getConnection()]);
    const failure = await locks
      .mutex('job')
      .acquire({ timeout: 5_000 })
      .catch((error: unknown) => error);
    for (const connection of taken) connection.release();
    expect(failure).toBeInstanceOf(EngineError);
    expect((failure as EngineError).message).toMatch(/connectionLimit|No connection/);
    await locks.mutex('job').run({ timeout: '30s' }, () => {});
  });
});

describe.each(PINNED)('%s', (strategy) => {
  test('no connection goes back to the pool with a lock on it', async () => {
    await using stage = new Stage(() => server.port);
    const pool = stage.pool({ connectionLimit: 6 });
    const locks = stage.locks({ strategy }, { ttl: '3s' }, pool);
    const other = stage.byUrl(`strategy=${strategy}`);
    const holder = await other.mutex('job').acquire();
    // Waits that are given up in the middle, and locks that are held and released.
    const gaveUp = await Promise.allSettled([1, 2, 3].map(() => locks.mutex('job').acquire({ timeout: 300 })));
    expect(gaveUp.every(({ status }) => status === 'rejected')).toBe(true);
    await holder.release();
    await locks.mutex('job').run({ timeout: '20s' }, () => {});
    await eventually('nothing is locked any more, and the settings are as before', async () => {
      const lease = await other.mutex('job').tryAcquire();
      expect(lease).toBeDefined();
      await lease!.release();
      const [rows] = await pool
        .promise()
        .query('SELECT @@autocommit AS a, @@wait_timeout = @@global.wait_timeout AS w');
      expect(rows).toEqual([{ a: 1, w: 1 }]);
    });
  });

  test('more locks than connections: an error that says how many there are', async () => {
    await using stage = new Stage(() => server.port);
    const locks = stage.byUrl(`strategy=${strategy}&connections=2`, { ttl: '30s' });
    const held = [await locks.mutex('a').acquire(), await locks.mutex('b').acquire()];
    const failure = await locks
      .mutex('c')
      .acquire({ timeout: 1_000 })
      .catch((error: unknown) => error);
    expect((failure as Error).message).toMatch(/At most 2/);
    for (const lease of held) await lease.release();
    await locks.mutex('c').run({ timeout: '20s' }, () => {});
  });
});

test('queue: killed connections cost nobody a lease', async () => {
  await using stage = new Stage(() => server.port);
  const locks = stage.byUrl('', { ttl: '1m' });
  const lease = await locks.mutex('job').acquire();
  for (let round = 0; round < 5; round += 1) {
    await killAll();
    await locks.mutex(`other-${round}`).run({ timeout: '20s' }, () => {});
  }
  expect(lease.held).toBe(true);
  await lease.release();
});
