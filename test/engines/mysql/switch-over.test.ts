/**
 * A switch-over behind an address that stays: new connections go to the new primary, the old one lives on as a read-only replica
 * and keeps its connections.
 */
import { createPool } from 'mysql2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../../src/index.js';
import { mysql } from '../../../src/engines/mysql/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually, waitFor } from '../../servers/wait.js';
import { Stage, STRATEGIES } from './kit.js';
import { answered } from './overheard.js';

let old: Server;
let next: Server;

beforeAll(async () => {
  [old, next] = await Promise.all([startMariadb(), startMariadb()]);
  for (const { port } of [old, next]) {
    await using stage = new Stage(() => port);
    await stage.byUrl('').ready();
    await sql(port, 'CREATE USER app; GRANT ALL ON test.* TO app');
  }
});
afterAll(() => Promise.all([old.stop(), next.stop()]));

async function connectionsOf(server: Server): Promise<number> {
  const [row] = await sql(server.port, "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE user = 'app'");
  return Number(row!['n']);
}

const TTL_MS = 6_000;

test.each(STRATEGIES)('%s: the successor is found within a ttl, and nobody stays behind', async (strategy) => {
  await sql(old.port, 'SET GLOBAL read_only = 0');
  await using address = await FaultProxy.start(old.port);
  const url = `mysql://app@127.0.0.1:${address.port}/test?strategy=${strategy}`;
  const pool = createPool({
    host: '127.0.0.1',
    port: address.port,
    user: 'app',
    database: 'test',
    connectionLimit: 6,
  });
  const instances = [
    new Holdfast(url, { ttl: TTL_MS }),
    new Holdfast(url, { ttl: TTL_MS }),
    new Holdfast(mysql(pool, { strategy }), { ttl: TTL_MS }),
  ];
  const [a, b] = instances as [Holdfast, Holdfast];
  const held = await a.mutex('held').acquire();
  // Some connections that are idle when it happens.
  for (const locks of instances)
    await Promise.all(['x', 'y', 'z'].map((name) => locks.mutex(name).run({ timeout: '20s' }, () => {})));
  address.retarget(next.port);
  await sql(old.port, 'SET GLOBAL read_only = 1');
  const switchedAt = performance.now();
  for (const [at, locks] of instances.entries()) {
    await locks.mutex('job').run({ timeout: 10 * TTL_MS }, ({ held: isHeld }) => expect(isHeld).toBe(true));
    // In a ttl on an idle machine; the first of them waited for all.
    if (at === 0) expect(performance.now() - switchedAt).toBeLessThan(5 * TTL_MS);
  }
  // What was held on the old server is not there on the new one, as after a replica that lagged, and that is told.
  expect(await waitFor(() => !held.held, 5 * TTL_MS)).toBe(true);
  const lease = await b.mutex('held').acquire({ timeout: 10 * TTL_MS });
  expect(await a.mutex('held').tryAcquire()).toBeUndefined();
  await lease.release();
  for (const locks of instances.slice(0, 2))
    await Promise.all(['x', 'y', 'z'].map((name) => locks.mutex(name).run({ timeout: '20s' }, () => {})));
  await instances[2]!.close();
  await pool.promise().end();
  await eventually('nobody is on the old server any more', async () => expect(await connectionsOf(old)).toBe(0));
  expect(await connectionsOf(next)).toBeGreaterThan(0);
  await Promise.all(instances.map((locks) => locks.close()));
});

/** How servers say that they take no writes; the last one is Galera's, of a node that is not in its cluster, to all but these. */
const REFUSALS: readonly (readonly [errno: number, refused: RegExp])[] = [
  [1290, /^(INSERT|UPDATE|DELETE|CALL)/],
  [1792, /^(INSERT|UPDATE|DELETE|CALL)/],
  [1836, /^(INSERT|UPDATE|DELETE|CALL)/],
  [1047, /^(?!SET|SHOW)/],
];

describe.each(REFUSALS)('a server that refuses with %i', (errno, refused) => {
  test.each(STRATEGIES)('%s: is left with all connections that were made before', async (strategy) => {
    await sql(old.port, 'SET GLOBAL read_only = 0');
    await using stage = new Stage(() => old.port);
    const met = new Set<object>();
    const left = new Set<object>();
    const asked: string[] = [];
    const error = Object.assign(new Error('no'), { errno, code: `ER_${errno}`, sqlState: 'HY000' });
    const pool = answered(stage.pool({ connectionLimit: 4 }), (statement, connection) => {
      met.add(connection);
      if (!left.has(connection)) return undefined;
      asked.push(statement);
      return refused.test(statement) ? error : undefined;
    });
    await using locks = new Holdfast(mysql(pool, { strategy }), { ttl: TTL_MS, namespace: `refusal-${errno}` });
    const names = ['x', 'y', 'z'];
    const useAll = (): Promise<unknown> =>
      Promise.all(names.map((name) => locks.mutex(name).run({ timeout: 10 * TTL_MS }, () => {})));
    await useAll();
    for (const connection of met) left.add(connection);
    expect(left.size).toBeGreaterThan(1);
    await useAll();
    asked.length = 0;
    await useAll();
    expect(asked).toEqual([]);
  });
});

test.each(['queue', 'row', 'get-lock'] as const)(
  '%s: a successor without our tables is given them',
  async (strategy) => {
    for (const { port } of [old, next])
      await sql(port, 'DROP DATABASE IF EXISTS fresh; CREATE DATABASE fresh; GRANT ALL ON fresh.* TO app');
    await sql(old.port, 'SET GLOBAL read_only = 0');
    await using address = await FaultProxy.start(old.port);
    await using locks = new Holdfast(`mysql://app@127.0.0.1:${address.port}/fresh?strategy=${strategy}`, {
      ttl: TTL_MS,
    });
    await locks.mutex('job').run({ timeout: 10 * TTL_MS }, () => {});
    address.retarget(next.port);
    await sql(old.port, 'SET GLOBAL read_only = 1');
    expect(await locks.mutex('job').run({ timeout: 10 * TTL_MS }, ({ held }) => held)).toBe(true);
  },
);

test('a primary that was demoted and has no successor is told as that, first', async () => {
  await sql(old.port, 'SET GLOBAL read_only = 0');
  await using locks = new Holdfast(`mysql://app@127.0.0.1:${old.port}/test`, { ttl: '3s' });
  await locks.mutex('job').run(() => {});
  await sql(old.port, 'SET GLOBAL read_only = 1');
  const error = await locks
    .mutex('job')
    .acquire({ timeout: '1s' })
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(EngineError);
  expect((error as EngineError).message).toMatch(/: The database is read-only: is this a replica/);
});
