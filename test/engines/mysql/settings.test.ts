/**
 * Whatever a session is set to, by the server or by whoever made the pool, a lock is a lock. Each setting has a user of its own,
 * whose sessions begin with it: it is there on connections that we make and on those of a user's pool alike.
 *
 * What comes of it stands in docs/engines/mysql.md. This test fails when the page says something else, and shows what it should say.
 */
import type { Pool, RowDataPacket } from 'mysql2';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { SETTINGS } from '../../../src/engines/mysql/client/settings.js';
import { STRATEGIES as TRAITS, type MysqlStrategy } from '../../../src/engines/mysql/traits.js';
import type { Actor } from '../../../src/conformance/protocol.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { cellOf, expectDocumented, outcomeFor } from '../settings-table.js';
import { MARIADB, Stage } from './kit.js';
import { answered } from './overheard.js';

const ALL_STRATEGIES = Object.keys(TRAITS) as MysqlStrategy[];

/** How a session begins. */
const ODD: readonly string[] = [
  'autocommit = 0',
  "completion_type = 'CHAIN'",
  "completion_type = 'RELEASE'",
  "sql_mode = 'SIMULTANEOUS_ASSIGNMENT'",
  "sql_mode = 'ORACLE'",
  "sql_mode = 'EMPTY_STRING_IS_NULL'",
  "sql_mode = 'ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES'",
  "sql_mode = ''",
  "tx_isolation = 'READ-UNCOMMITTED'",
  "tx_isolation = 'SERIALIZABLE'",
  'tx_read_only = 1',
  'sql_select_limit = 1',
  'sql_select_limit = 0',
  'sql_safe_updates = 1',
  'unique_checks = 0, foreign_key_checks = 0',
  "time_zone = '-11:30'",
  "autocommit = 0, tx_isolation = 'SERIALIZABLE', sql_mode = 'ORACLE', sql_select_limit = 1",
];

/** The server's own, for all sessions. */
const READ_ONLY = 'global read_only = 1';

const userOf = (at: number): string => `odd_${at}`;

let server: Server;

/** Modes and names of variables are MariaDB's. */
beforeEach(({ skip }) => skip(!MARIADB, 'MySQL has other names for these settings'));

beforeAll(async () => {
  server = await startMariadb();
  if (!MARIADB) return;
  await using stage = new Stage(() => server.port);
  await stage.byUrl('').ready();
  await sql(server.port, 'CREATE TABLE oddity (user VARCHAR(64), begins TEXT)');
  for (const [at, begins] of [...ODD, 'autocommit = 1'].entries())
    await sql(
      server.port,
      `CREATE USER ${userOf(at)}; GRANT ALL ON test.* TO ${userOf(at)};
        INSERT INTO oddity VALUES ('${userOf(at)}', '${`SET ${begins}`.replaceAll("'", "''")}')`,
    );
  const begin =
    "SET @begins = COALESCE((SELECT begins FROM test.oddity WHERE user = SUBSTRING_INDEX(USER(), ''@'', 1)), ''DO 0''); " +
    'EXECUTE IMMEDIATE @begins';
  await sql(server.port, `SET GLOBAL init_connect = '${begin}'`);
});
afterAll(() => server.stop());

/** Where the two come from who share a lock. */
type Places = (stage: Stage) => readonly [string | object, string | object];

/** One by URL and one on a pool of a user. */
const asUser =
  (user: string): Places =>
  (stage) => [`mysql://${user}@127.0.0.1:${server.port}/test`, stage.pool({ user, connectionLimit: 4 })];

async function outcome(strategy: MysqlStrategy, what: string, places: Places): Promise<string> {
  await using stage = new Stage(() => server.port);
  const [first, second] = places(stage);
  const open = (place: string | object): Promise<Actor> => stage.actor({ strategy }, `${strategy} ${what}`, place);
  return await outcomeFor(async () => [await open(first), await open(second)]);
}

test('every setting that we put right is tried', () => {
  for (const { names } of SETTINGS)
    expect(
      ODD.some((odd) => names.some((name) => odd.includes(name))),
      names.join(),
    ).toBe(true);
});

/** The lines of the table. */
const found: string[][] = [];

async function judge(what: string, places: Places): Promise<readonly string[]> {
  const row = [`\`${what}\``];
  found.push(row);
  const outcomes = await Promise.all(ALL_STRATEGIES.map((strategy) => outcome(strategy, what, places)));
  row.push(...outcomes.map(cellOf));
  return outcomes;
}

describe.concurrent('sessions that begin with', () => {
  test.for(ODD.map((what, at) => ({ what, at })))('$what', async ({ what, at }) => {
    expect(new Set(await judge(what, asUser(userOf(at))))).toEqual(new Set(['works']));
  });
});

test('sessions that begin with any of them can make the tables', async () => {
  await using stage = new Stage(() => server.port);
  const first = ODD.map(async (what, at) => {
    const pool = stage.pool({ user: userOf(at), connectionLimit: 2 });
    const locks = stage.locks({ tablePrefix: `first${at}_` }, { ttl: '1m' }, pool);
    expect(await locks.mutex('job').run({ timeout: '1m' }, ({ held }) => held), what).toBe(true);
  });
  await Promise.all(first);
});

test('a server that is read-only is told as that, first', async () => {
  await sql(server.port, `SET ${READ_ONLY}`);
  const outcomes = await judge(READ_ONLY, asUser(userOf(ODD.length)));
  await sql(server.port, 'SET GLOBAL read_only = 0');
  for (const said of outcomes) expect(said).toMatch(/^EngineError: The database is read-only: is this a replica/);
});

/** A cluster is too much for a test: a server that says it is one. */
function saying(what: string): Places {
  const answer = (statement: string): unknown[] | undefined =>
    statement.includes('wsrep_on') ? [what.split(' = ')] : undefined;
  return (stage) => [answered(stage.pool(), answer), answered(stage.pool(), answer)];
}

/** What `for-update` and `get-lock` refuse, because they rest on locks of one server, and more than one connection. */
const ONE_SERVER: readonly { readonly what: string; readonly named: RegExp; readonly places: Places }[] = [
  {
    what: 'connectionLimit: 1',
    named: /connectionLimit 1/,
    places: (stage) => [stage.pool({ connectionLimit: 1 }), stage.pool({ connectionLimit: 1 })],
  },
  ...['wsrep_on = ON', 'group_replication_single_primary_mode = OFF'].map((what) => ({
    what,
    named: new RegExp(what),
    places: saying(what),
  })),
];

test.each(ONE_SERVER)('$what is named where it matters', async ({ what, named, places }) => {
  const outcomes = await judge(what, places);
  for (const [at, strategy] of ALL_STRATEGIES.entries()) {
    if (TRAITS[strategy].liveness !== 'connection') expect(outcomes[at]).toBe('works');
    else expect(outcomes[at]).toMatch(new RegExp(`^ConfigError: .*${named.source}`));
  }
});

test('docs/engines/mysql.md says what was found', () => {
  const order = [...ODD, READ_ONLY, ...ONE_SERVER.map(({ what }) => what)];
  return expectDocumented(
    'mysql',
    order.map((what) => found.find(([name]) => name === `\`${what}\``)!),
  );
});

// --- what a user's pool gets back ---------------------------------------------------------------------------------

const THEIRS = {
  wait_timeout: '77',
  innodb_lock_wait_timeout: '7',
  tx_isolation: 'SERIALIZABLE',
  autocommit: 'OFF',
  completion_type: 'CHAIN',
  sql_mode: 'EMPTY_STRING_IS_NULL',
  sql_select_limit: '5',
  tx_read_only: 'ON',
};

function beginsWith(pool: Pool, settings: Readonly<Record<string, string>>): void {
  const parts = Object.entries(settings).map(
    ([name, value]) => `${name} = ${/^\d+$/.test(value) ? value : `'${value}'`}`,
  );
  pool.on('connection', (connection) => void connection.query(`SET ${parts.join(', ')}`));
}

/** Of all connections that a pool has. */
async function settingsIn(pool: Pool, many: number): Promise<readonly Readonly<Record<string, string>>[]> {
  const names = Object.keys(THEIRS).map((name) => `'${name}'`);
  const connections = await Promise.all(Array.from({ length: many }, () => pool.promise().getConnection()));
  const found = [];
  for (const connection of connections) {
    const show = `SHOW SESSION VARIABLES WHERE Variable_name IN (${names.join(', ')})`;
    await connection.query('SET @limit = @@SESSION.sql_select_limit, @@SESSION.sql_select_limit = DEFAULT');
    const [rows] = await connection.query<RowDataPacket[]>(show);
    const [[limit]] = (await connection.query({ sql: 'SELECT @limit AS was', rowsAsArray: true })) as unknown as [
      [[number]],
    ];
    await connection.query(`SET @@SESSION.sql_select_limit = ${limit[0]}`);
    const values = Object.fromEntries(
      rows.map(({ Variable_name, Value }) => [Variable_name as string, Value as string]),
    );
    found.push({ ...values, sql_select_limit: `${limit[0]}` });
  }
  for (const connection of connections) connection.release();
  return found;
}

test.each(ALL_STRATEGIES)('%s: a pool of the user’s has its settings back as they were', async (strategy) => {
  await using stage = new Stage(() => server.port);
  const pool = stage.pool({ connectionLimit: 3 });
  beginsWith(pool, THEIRS);
  const locks = stage.locks({ strategy }, { ttl: '30s', namespace: `back-${strategy}` }, pool);
  for (const name of ['a', 'b', 'a']) await locks.mutex(name).run(() => {});
  await locks.close();
  expect(await settingsIn(pool, 3)).toEqual([THEIRS, THEIRS, THEIRS]);
});

test('queue without routines: a pool of the user’s has its settings back as they were', async () => {
  await sql(server.port, 'CREATE USER plain; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO plain');
  await using stage = new Stage(() => server.port);
  const pool = stage.pool({ connectionLimit: 3, user: 'plain' });
  beginsWith(pool, THEIRS);
  const locks = stage.locks({}, { ttl: '30s', namespace: 'back-plain' }, pool);
  for (const name of ['a', 'b', 'a']) await locks.mutex(name).run(() => {});
  await locks.close();
  expect(await settingsIn(pool, 3)).toEqual([THEIRS, THEIRS, THEIRS]);
});

test.each(ALL_STRATEGIES)(
  '%s: settings that change while the pool is in use are noticed, and kept',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    // As few as will do: those are known that are used here.
    const many = TRAITS[strategy].liveness === 'connection' ? 2 : 1;
    const pool = stage.pool({ connectionLimit: many });
    const namespace = `later-${strategy}`;
    const locks = stage.locks({ strategy }, { ttl: '30s', namespace }, pool);
    await locks.mutex('job').run(() => {});
    const all = await Promise.all(Array.from({ length: many }, () => pool.promise().getConnection()));
    for (const connection of all) {
      await connection.query('SET autocommit = 0, wait_timeout = 88');
      connection.release();
    }
    const lease = await locks.mutex('job').acquire();
    const other = stage.byUrl(`strategy=${strategy}`, { ttl: '30s', namespace });
    expect(await other.mutex('job').tryAcquire()).toBeUndefined();
    // Committed, so that it is there though its connection is not, where the lock is no connection's.
    if (TRAITS[strategy].liveness !== 'connection')
      for (const { id } of await sql(server.port, 'SELECT id FROM information_schema.processlist WHERE time < 60'))
        await sql(server.port, `KILL CONNECTION ${id}`).catch(() => {});
    expect(await other.mutex('job').tryAcquire()).toBeUndefined();
    expect(lease.held).toBe(true);
    await lease.release();
  },
);

test.each(['for-update', 'get-lock'] as const)(
  '%s: a pool that resets its connections when they are released has locks all the same',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    const options = { connectionLimit: 4, resetOnRelease: true };
    const [a, b] = [1, 2].map(() =>
      stage.locks({ strategy }, { ttl: '30s', namespace: `reset-${strategy}` }, stage.pool(options)),
    );
    for (let round = 0; round < 3; round += 1) {
      const lease = await a!.mutex('job').acquire();
      expect(await b!.mutex('job').tryAcquire()).toBeUndefined();
      await lease.release();
      await b!.mutex('job').run({ timeout: '10s' }, () => {});
    }
  },
);
