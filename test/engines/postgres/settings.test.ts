/**
 * Settings as a server, a role, a pool or a pooler may have them, by strategy: each is harmless, or a ConfigError that names it.
 * docs/engines/postgres.md shows the outcome as a table, and this test makes that table.
 */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool, PoolConfig } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { postgres } from '../../../src/engines/postgres/index.js';
import { ConfigError, Holdfast, type Lease } from '../../../src/index.js';
import { startPgBouncer } from '../../servers/pgbouncer.js';
import { sql, startPostgres } from '../../servers/postgres.js';
import type { Server } from '../../servers/server.js';
import { eventually, waitFor } from '../../servers/wait.js';
import { expectDocumented } from '../settings-table.js';
import { Kit } from './kit.js';

const kit = new Kit({ settings: { max_connections: '400' } });
const WITHIN_MS = 60_000;
const STRATEGIES = ['queue', 'advisory'] as const;
type Strategy = (typeof STRATEGIES)[number];

let bouncer: Server;

beforeAll(async () => {
  bouncer = await startPgBouncer(kit.server.port);
  // What a test of the application that wants to travel in time, or to do without locks, puts before PostgreSQL's own.
  await kit.sql('CREATE SCHEMA shadow');
  for (const routine of [
    `clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '2001-01-01' $$`,
    `now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '2001-01-01' $$`,
    `hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT (random() * 1000000)::bigint $$`,
    `pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$`,
    `pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$`,
    `pg_try_advisory_lock_shared(bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$`,
    `current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'nothing' $$`,
  ])
    await kit.sql(`CREATE FUNCTION shadow.${routine}`);
});

afterAll(() => bouncer.stop());

interface Odd {
  /** As the table has it. */
  readonly title: string;
  /** What a ConfigError has to name. */
  readonly named?: string;
  readonly pool: () => Pool;
}

function setting(name: string, value: string): Odd {
  const options = `-c ${name}=${value.replaceAll(' ', String.raw`\ `)}`;
  return { title: `\`${name} = ${value}\``, named: name, pool: () => kit.pool({ options }) };
}

const ODD: readonly Odd[] = [
  setting('synchronous_commit', 'off'),
  setting('default_transaction_isolation', 'repeatable read'),
  setting('default_transaction_isolation', 'serializable'),
  setting('default_transaction_read_only', 'on'),
  setting('default_transaction_deferrable', 'on'),
  setting('TimeZone', 'Pacific/Apia'),
  setting('DateStyle', 'SQL,DMY'),
  setting('IntervalStyle', 'sql_standard'),
  setting('bytea_output', 'escape'),
  setting('standard_conforming_strings', 'off'),
  setting('extra_float_digits', '-15'),
  setting('plpgsql.extra_errors', 'all'),
  setting('statement_timeout', '20ms'),
  setting('statement_timeout', '10s'),
  setting('lock_timeout', '20ms'),
  setting('idle_in_transaction_session_timeout', '10ms'),
  setting('idle_session_timeout', '3s'),
  { ...setting('search_path', 'shadow,pg_catalog'), title: 'a schema before `pg_catalog` in `search_path`' },
  {
    title: '`SET client_encoding = LATIN1` by the pool',
    named: 'client_encoding',
    pool: () => {
      const pool = kit.pool();
      pool.on('connect', (client) => void client.query(`SET client_encoding = 'LATIN1'`));
      return pool;
    },
  },
  { title: '`binary: true` of the pool', pool: () => kit.pool({ binary: true } as PoolConfig) },
  { title: '`max: 1` of the pool', named: 'max', pool: () => kit.pool({ max: 1 }) },
  { title: 'a pooler in transaction mode', named: 'pooler', pool: () => kit.pool({ port: bouncer.port }) },
];

/** Two instances as the setting has them. One without it looks on. */
async function outcome({ title, named, pool }: Odd, strategy: Strategy, plain: Holdfast): Promise<string> {
  // In more than ASCII: the encoding is a setting, too.
  const name = `Schloß ✓ ${title}`;
  const [a, b] = [kit.locks(pool(), { strategy, ttl: '12s' }), kit.locks(pool(), { strategy, ttl: '12s' })];
  const acquired = await a
    .mutex(name)
    .acquire({ timeout: WITHIN_MS })
    .catch((error: unknown) => error);
  if (acquired instanceof ConfigError) {
    expect(acquired.message).toContain(named);
    return '`ConfigError`';
  }
  if (acquired instanceof Error) throw acquired;
  const lease = acquired as Lease;
  // Over a beat: what is left grows only by one.
  let left = lease.remaining;
  const beaten = (): boolean => left < (left = lease.remaining);
  expect(await waitFor(beaten, WITHIN_MS), `${title}: beats`).toBe(true);
  for (const other of [b, plain]) expect(await other.mutex(name).tryAcquire(), `${title}: excludes`).toBeUndefined();
  const waiting = b.mutex(name).acquire({ timeout: WITHIN_MS });
  expect(await lease.release(), `${title}: was held to the end`).toBe(true);
  const next = await waiting;
  expect(lease.held).toBe(false);
  expect(next.token).toBeGreaterThan(lease.token);
  await b.register(name).set('ß', next);
  expect(await plain.register(name).get()).toMatchObject({ value: 'ß', token: next.token });
  expect(await next.release()).toBe(true);
  await both(a, plain, `${name} shared`);
  if (strategy === 'queue') await listed(a, plain, `${name} listed`);
  return 'works';
}

async function both(a: Holdfast, b: Holdfast, name: string): Promise<void> {
  const writer = await a.rwLock(name).write.acquire({ timeout: WITHIN_MS });
  const reader = await writer.downgrade();
  const other = await b.rwLock(name).read.acquire({ timeout: WITHIN_MS });
  expect(await a.rwLock(name).write.tryAcquire()).toBeUndefined();
  expect(await other.release()).toBe(true);
  expect(await reader.release()).toBe(true);
}

async function listed(a: Holdfast, b: Holdfast, name: string): Promise<void> {
  const lease = await a.semaphore(name, 3).acquire({ permits: 2, timeout: WITHIN_MS });
  const { claims } = await a.semaphore(name, 3).inspect();
  expect(claims).toMatchObject([{ state: 'held', weight: 2, token: lease.token }]);
  expect(await a.evict(name, claims[0]!.id, 'ß')).toBe(true);
  expect(await waitFor(() => !lease.held, WITHIN_MS)).toBe(true);
  const next = await b.semaphore(name, 3).acquire({ permits: 3, timeout: WITHIN_MS });
  expect(await next.release()).toBe(true);
}

test('the outcome of each is as the documentation has it', async () => {
  const rows: string[][] = ODD.map(({ title }) => [title]);
  for (const strategy of STRATEGIES) {
    const plain = kit.locks(kit.pool(), { strategy, ttl: '30s' });
    await plain.ready();
    // All at once: they mostly wait for their beats.
    const outcomes = await Promise.all(ODD.map((odd) => outcome(odd, strategy, plain)));
    for (const [at, told] of outcomes.entries()) rows[at]!.push(told);
  }
  await expectDocumented('postgres', rows);
});

test('where a lock works, so does the first one, which makes the tables', async () => {
  const failures = await Promise.all(
    ODD.map(async ({ title, pool }, at) => {
      const locks = kit.locks(pool(), { schema: `first_${at}`, ttl: '1m' });
      return await locks
        .mutex('x')
        .run({ timeout: WITHIN_MS }, () => undefined)
        .catch((error: unknown) => (error instanceof ConfigError ? undefined : `${title}: ${String(error)}`));
    }),
  );
  expect(failures.filter((failure) => failure !== undefined)).toEqual([]);
});

const REPEATABLE = 'SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ';

test('a connection that the application has changed later is not used, and another one is', async () => {
  const pool = kit.pool({ max: 2 });
  const locks = kit.locks(pool, { ttl: '1m' });
  await locks.mutex('x').run(() => {});
  const clients = await Promise.all([pool.connect(), pool.connect()]);
  for (const client of clients) {
    await client.query(REPEATABLE);
    client.release();
  }
  expect(await locks.mutex('x').run(({ held }) => held)).toBe(true);
});

test('an application that changes every connection later is told', async () => {
  const pool = kit.pool();
  const locks = kit.locks(pool, { ttl: '1m' });
  await locks.mutex('x').run(() => {});
  for (const client of await Promise.all(Array.from({ length: 10 }, () => pool.connect()))) {
    await client.query(REPEATABLE);
    client.release();
  }
  pool.on('connect', (client) => void client.query(REPEATABLE));
  const refused = await locks
    .mutex('x')
    .acquire()
    .catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(ConfigError);
  expect(String(refused)).toContain('repeatable read');
});

test('a setting that an operator has made and taken back leaves nothing behind', async () => {
  await kit.sql('CREATE ROLE changing LOGIN SUPERUSER');
  const locks = kit.locks(kit.url.replace('//postgres@', '//changing@'), { ttl: '3s' });
  const acquire = (name: string): Promise<unknown> =>
    locks
      .mutex(name)
      .run(() => 'held')
      .catch((error: unknown) => (error instanceof ConfigError ? 'refused' : undefined));
  // Together, so that they need many connections.
  const acquired = async (): Promise<unknown> =>
    [...new Set(await Promise.all('abcdefgh'.split('').map(acquire)))].join();
  expect(await acquired()).toBe('held');
  await kit.sql(`ALTER ROLE changing SET default_transaction_isolation = 'serializable'`);
  await kit.endConnections();
  await eventually('it is noticed', async () => expect(await acquired()).toBe('refused'));
  await kit.sql('ALTER ROLE changing RESET default_transaction_isolation');
  // No connection is ended with it.
  await eventually('it is as before', async () => expect(await acquired()).toBe('held'));
});

test('a full queue of messages fails no release, and the next is served all the same', async () => {
  await kit.sql('CREATE DATABASE quiet');
  const url = kit.url.replace(/postgres$/, 'quiet');
  const [a, b] = [kit.locks(url, { ttl: '3s' }), kit.locks(url, { ttl: '3s' })];
  const lease = await a.mutex('x').acquire();
  const waiting = b.mutex('x').acquire();
  const pool = kit.pool({ database: 'quiet' });
  const stands = async (): Promise<boolean> =>
    (await pool.query('SELECT FROM holdfast.holdfast_claim WHERE NOT held')).rowCount === 1;
  expect(await waitFor(stands, WITHIN_MS)).toBe(true);
  // As if it were full: really filling it takes gigabytes.
  await pool.query('ALTER FUNCTION pg_catalog.pg_notification_queue_usage() RENAME TO the_real_one');
  await pool.query(
    `CREATE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision LANGUAGE sql AS $$ SELECT 1.0::float8 $$`,
  );
  await pool.query(`ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO the_real_notify`);
  await pool.query(
    `CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'too many notifications'; END $$`,
  );
  expect(await lease.release()).toBe(true);
  expect((await waiting).token).toBeGreaterThan(lease.token);
});

test('every connection has the password of the pool', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-hba-'));
  await chmod(folder, 0o755);
  const file = join(folder, 'hba.conf');
  const lines = ['host all postgres 127.0.0.1/32 trust', 'host all all 127.0.0.1/32 scram-sha-256'];
  await writeFile(file, `${lines.join('\n')}\n`);
  try {
    await using server = await startPostgres({ settings: { hba_file: file } });
    await sql(server.port, `CREATE ROLE app LOGIN PASSWORD 'a secret'`);
    await sql(server.port, 'GRANT CREATE ON DATABASE postgres TO app');
    for (const strategy of STRATEGIES) {
      const url = `postgres://app:a%20secret@127.0.0.1:${server.port}/postgres`;
      await using locks = new Holdfast(postgres(url, { strategy }), { ttl: '3s' });
      expect((await locks.mutex('x').acquire()).held).toBe(true);
      const listening = async (): Promise<boolean> =>
        (await sql(server.port, `SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE '%_beat%'`))
          .length > 0;
      expect(await waitFor(listening, WITHIN_MS)).toBe(true);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
