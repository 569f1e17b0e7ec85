import { expect, test } from 'vitest';
import { postgres } from '../../../src/engines/postgres/index.js';
import { ConfigError, EngineError, Holdfast } from '../../../src/index.js';
import { Kit } from './kit.js';

const kit = new Kit();

test('many instances may be the first, at once', async () => {
  const all = Array.from({ length: 8 }, () => kit.locks(kit.url, { schema: 'busy_start' }));
  await Promise.all(all.map((locks) => locks.mutex('x').run(() => {})));
  expect(await kit.sql('SELECT version FROM busy_start.holdfast_migration ORDER BY 1')).toEqual([
    { version: 1 },
    { version: 2 },
    { version: 3 },
  ]);
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
  expect(await kit.count('migration')).toBe(3);
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
