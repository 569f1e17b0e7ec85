import { Client } from 'pg';
import { expect, test } from 'vitest';
import { postgres } from '../../../src/engines/postgres/index.js';
import { ConfigError, EngineError, Holdfast, MigrationLockError } from '../../../src/index.js';
import { schemaFromUrl } from '../../../src/schemes.js';
import { until } from '../../servers/lines.js';
import { Kit } from './kit.js';

const kit = new Kit();

test('many instances may be the first, at once', async () => {
  const all = Array.from({ length: 8 }, () => kit.locks(kit.url, { schema: 'busy_start' }));
  await Promise.all(all.map((locks) => locks.mutex('x').run(() => {})));
  expect(await kit.sql('SELECT version FROM busy_start.holdfast_migration ORDER BY 1')).toEqual([
    { version: 1 },
    { version: 2 },
    { version: 3 },
    { version: 4 },
  ]);
});

test('tables of before claims had a nonce are migrated, and a lock is handed on', async () => {
  await kit
    .locks(kit.url, { schema: 'before' })
    .mutex('x')
    .run(() => {});
  await kit.sql('ALTER TABLE before.holdfast_claim DROP COLUMN nonce');
  await kit.sql('DELETE FROM before.holdfast_migration WHERE version >= 4');
  const [holder, waiter] = [kit.locks(kit.url, { schema: 'before' }), kit.locks(kit.url, { schema: 'before' })];
  const lease = await holder.mutex('x').acquire();
  const waiting = waiter.mutex('x').acquire();
  await until('it waits', async () => (await holder.mutex('x').inspect()).claims.length === 2);
  await lease.release();
  expect((await waiting).token).toBeGreaterThan(lease.token);
});

test('two schemas, and two prefixes in one schema, do not see each other', async () => {
  const places = [{}, { schema: 'other' }, { schema: 'other', tablePrefix: 'mine_' }];
  const leases = await Promise.all(
    places.map((place) => kit.locks(kit.url, place).mutex('x').acquire({ timeout: '30s' })),
  );
  expect(leases.map(({ held }) => held)).toEqual([true, true, true]);
});

test('identifiers are checked, names and namespaces are data', async () => {
  for (const bad of ['a"b', 'a;b', 'a b', '', '1a', 'ä', 'x'.repeat(64)])
    expect(() => postgres(kit.url, { schema: bad })).toThrow(ConfigError);
  expect(() => postgres(kit.url, { tablePrefix: 'a"; DROP TABLE x' })).toThrow(ConfigError);
  const evil = `'; DROP SCHEMA holdfast CASCADE; --`;
  await kit
    .locks(kit.url, { namespace: evil })
    .mutex(`"${evil}`)
    .run(() => {});
  expect(await kit.count('migration')).toBe(4);
});

test('without migrate, missing tables are an error that says what to run', async () => {
  const locks = kit.locks(kit.url, { schema: 'nowhere', migrate: false });
  const error = await locks
    .mutex('x')
    .acquire()
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(EngineError);
  expect(error).toMatchObject({ retryable: false, message: expect.stringContaining('holdfast schema apply') });
});

test('a role that may do nothing is told what it lacks; no password is in any error', async () => {
  await kit
    .locks()
    .mutex('x')
    .run(() => {});
  await kit.sql(`CREATE ROLE guest LOGIN`);
  const guest = kit.url.replace('postgres@', 'guest:p%40ss%2Fword@');
  const refused = async (url: string): Promise<EngineError> => {
    const locks = kit.locks(url);
    return locks
      .mutex('x')
      .acquire()
      .catch((thrown: unknown) => thrown as EngineError) as Promise<EngineError>;
  };
  for (const url of [guest, `${guest}?schema=another`]) {
    const error = await refused(url);
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: false });
    expect(error.message).toContain('holdfast schema');
    expect(JSON.stringify(error) + error.stack + String(error.cause)).not.toMatch(/p@ss|p%40ss/);
  }
  await kit.sql('GRANT USAGE ON SCHEMA holdfast TO guest');
  await kit.sql('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO guest');
  const lease = await kit.locks(guest).mutex('y').acquire();
  expect(lease.held).toBe(true);
});

test('a wrong user or database is no reason to try again', async () => {
  const urls = [kit.url.replace('postgres@', 'nobody_here@'), kit.url.replace(/postgres$/, 'no_such_database')];
  for (const url of urls) {
    const error = await kit
      .locks(url)
      .mutex('x')
      .acquire()
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: false });
  }
});

test('a URL says what it can’t mean, and never shows its password', () => {
  for (const [url, message] of [
    ['postgres://u:secret@a,b/db', 'one host'],
    ['postgres://u:secret@a/b/c', 'name of a database'],
    ['postgres://u:secret@a/db?sslmode=perhaps', 'sslmode'],
    ['postgres://u:secret@a/db?migrate=maybe', 'migrate'],
    ['postgres://u:secret@a/db?pool=3', 'parameter'],
    ['postgres://u:secret@a/db?strategy=luck', 'strategy'],
  ] as const) {
    const attempt = (): unknown => new Holdfast(url);
    expect(attempt).toThrow(message);
    expect(attempt).not.toThrow('secret');
  }
  expect(() => postgres({})).toThrow('Pool of pg');
});

test('a role in a hurry, whose idle transactions are ended at once, can make the tables, and hears who keeps it from it', async () => {
  await kit.sql(`CREATE ROLE hasty LOGIN`);
  await kit.sql(`ALTER ROLE hasty SET idle_in_transaction_session_timeout = '1ms'`);
  await kit.sql(`ALTER ROLE hasty SET statement_timeout = '1s'`);
  await kit.sql('GRANT CREATE ON DATABASE postgres TO hasty');
  await using schema = (await schemaFromUrl(`${kit.url.replace('postgres@', 'hasty@')}?schema=hasty`))!;
  const stranger = new Client(kit.url);
  await stranger.connect();
  await stranger.query(`SELECT pg_advisory_lock(hashtextextended('holdfast migration', 0))`);
  await expect(schema.apply()).rejects.toThrow(MigrationLockError);
  await stranger.end();
  expect(await schema.apply()).not.toEqual([]);
});

test('who waits too long for another that migrates is told so, and nothing was made', async () => {
  const stranger = new Client(kit.url);
  await stranger.connect();
  try {
    await stranger.query(`SELECT pg_advisory_lock(hashtextextended('holdfast migration', 0))`);
    await using schema = (await schemaFromUrl(`${kit.url}?schema=behind`))!;
    const refused: unknown = await schema.apply().catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineError);
    expect(String(refused)).toContain('migration lock');
    expect(await kit.sql(`SELECT FROM pg_namespace WHERE nspname = 'behind'`)).toEqual([]);
    await stranger.query('SELECT pg_advisory_unlock_all()');
    expect(await schema.apply()).not.toEqual([]);
  } finally {
    await stranger.end();
  }
});
