/**
 * An address that was moved to another server: new connections lead there, and the old server lives on, without writes. It
 * answers, so nobody is told by a connection that ends.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { LeaseLostError } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { sql, startPostgres } from '../../servers/postgres.js';
import type { Server } from '../../servers/server.js';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

/** Its server is the old one. */
const kit = new Kit();
const WITHIN_MS = 30_000;

let proxy: FaultProxy;
let successor: Server;

beforeAll(async () => {
  successor = await startPostgres();
});

afterAll(() => successor.stop());

beforeEach(async () => {
  await kit.sql('ALTER SYSTEM RESET default_transaction_read_only');
  await kit.sql('SELECT pg_reload_conf()');
  await sql(successor.port, 'DROP SCHEMA IF EXISTS holdfast CASCADE');
  proxy = await FaultProxy.start(kit.server.port);
});

afterEach(() => proxy[Symbol.asyncDispose]());

const url = (): string => kit.url.replace(`:${kit.server.port}/`, `:${proxy.port}/`);

async function demote(): Promise<void> {
  await kit.sql('ALTER SYSTEM SET default_transaction_read_only = on');
  await kit.sql('SELECT pg_reload_conf()');
  const readOnly = async (): Promise<boolean> =>
    (await kit.sql<{ on: string }>(`SELECT current_setting('transaction_read_only') AS on`))[0]!.on === 'on';
  expect(await waitFor(readOnly, WITHIN_MS)).toBe(true);
}

async function switchOver(): Promise<void> {
  proxy.retarget(successor.port);
  await demote();
}

/** Connections of ours, by where they lead. */
async function connections(port: number): Promise<number> {
  const rows = await sql(port, `SELECT FROM pg_stat_activity WHERE application_name = 'holdfast'`);
  return rows.length;
}

describe('queue', () => {
  test('the successor is found within a ttl, without tables, and the old server is left', async () => {
    const [a, b] = [kit.locks(url(), { ttl: '3s' }), kit.locks(url(), { ttl: '3s' })];
    const lease = await a.mutex('x').acquire();
    await b.mutex('warm').run(() => {});
    await switchOver();
    const next = await b.mutex('y').acquire({ timeout: '3s' });
    expect(next.held).toBe(true);
    // The successor knows nothing of this one.
    expect(await waitFor(() => !lease.held, WITHIN_MS)).toBe(true);
    const again = await a.mutex('y').tryAcquire();
    expect(again).toBeUndefined();
    const waiting = a.mutex('y').acquire();
    await next.release();
    expect((await waiting).token).toBeGreaterThan(next.token);
    expect(await waitFor(async () => (await connections(kit.server.port)) === 0, WITHIN_MS)).toBe(true);
    expect(await connections(successor.port)).toBeGreaterThanOrEqual(2);
  });

  test('a pool of the user’s that is full of connections to the old server finds the successor, too', async () => {
    const pool = kit.pool({ port: proxy.port, max: 12 });
    const all = await Promise.all(Array.from({ length: 12 }, () => pool.connect()));
    for (const client of all) client.release();
    const locks = kit.locks(pool, { ttl: '3s' });
    await locks.mutex('x').run(() => {});
    await switchOver();
    expect((await locks.mutex('x').acquire({ timeout: WITHIN_MS })).held).toBe(true);
    // Whatever connection it gets from now on.
    await Promise.all(
      Array.from({ length: 12 }, (_, at) => locks.mutex(`${at}`).run({ timeout: WITHIN_MS }, () => {})),
    );
  });

  test('without a successor, the first word is that the server takes no writes', async () => {
    const locks = kit.locks(url(), { ttl: '3s' });
    await locks.mutex('x').run(() => {});
    await demote();
    const error: unknown = await locks
      .mutex('x')
      .acquire({ timeout: '2s' })
      .catch((thrown: unknown) => thrown);
    expect(String(error)).toMatch(/^EngineError: "x" on postgres at \S+: PostgreSQL takes no writes/);
    expect(error).toMatchObject({ retryable: true });
  });

  test('a role that may not make tables there is told what to do', async () => {
    const locks = kit.locks(url(), { ttl: '3s', migrate: false });
    await kit.locks(kit.url).ready();
    await locks.mutex('x').run(() => {});
    await switchOver();
    await expect(locks.mutex('x').acquire({ timeout: '3s' })).rejects.toThrow('holdfast schema apply');
  });
});

describe('advisory', () => {
  test('what is held on the old server is told as lost, and the successor is found', async () => {
    const locks = kit.locks(url(), { ttl: '3s', strategy: 'advisory' });
    const lease = await locks.mutex('x').acquire();
    const lost = new Promise<LeaseLostError>((resolve) =>
      lease.signal.addEventListener('abort', () => resolve(lease.signal.reason as LeaseLostError)),
    );
    await switchOver();
    expect(await lost).toMatchObject({ reason: 'connection', detail: expect.stringContaining('read-only') as string });
    const next = await locks.mutex('x').acquire({ timeout: '3s' });
    expect(next.token).toBeGreaterThan(lease.token);
    expect(await connections(successor.port)).toBeGreaterThanOrEqual(1);
  });
});
