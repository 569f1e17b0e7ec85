/** Fences inside of a user's own transaction, on each database. */
import type { DatabaseSync } from '@photostructure/sqlite';
import { clearParserCache, createConnection } from 'mysql2';
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { isStale } from '../../../src/core/fence.js';
import { fence, migrate } from '../../../src/fence/index.js';
import { ConfigError, EngineError, Holdfast, type Lease, schemaFromUrl, StaleTokenError } from '../../../src/index.js';
import { oddCast } from '../../servers/mariadb.js';
import { seededRandom } from '../../servers/seeded-random.js';
import { waitFor } from '../../servers/wait.js';
import { type Connection, DATABASES, type TestDatabase } from './databases.js';

/** Beyond 2^53, where neighbours are the same double. */
const BASE = 2n ** 60n;

describe.each(Object.entries(DATABASES))('%s', (dialect, start) => {
  let database: TestDatabase;
  const open: Connection[] = [];
  const locks = new Holdfast('memory:');

  beforeAll(async () => {
    database = await start();
    await migrate((await connect()).db);
  });
  afterEach(async () => {
    for (const connection of open.splice(0)) await connection.close();
  });
  afterAll(async () => {
    await locks.close();
    await database?.[Symbol.asyncDispose]();
  });

  async function connect(): Promise<Connection> {
    const connection = await database.connect();
    open.push(connection);
    return connection;
  }

  test('judges readers and writers by the rule, in integers of 64 bits', async () => {
    const connection = await connect();
    const random = seededRandom(7);
    let [maxRead, maxWrite] = [0n, 0n];
    for (let step = 0; step < 150; step += 1) {
      const token = BASE + BigInt(Math.floor(step / 8 + random() * 6));
      const mode = random() < 0.5 ? 'read' : 'write';
      const newest = maxRead > maxWrite ? maxRead : maxWrite;
      const stale = isStale({ token, mode }, maxRead, maxWrite);
      expect(await show(connection, 'model', token, mode === 'read')).toBe(stale ? newest : undefined);
      if (stale) continue;
      if (mode === 'write') maxWrite = token;
      else if (token > maxRead) maxRead = token;
    }
  });

  test('a stale token is refused with what was newer, and says so', async () => {
    const connection = await connect();
    expect(await show(connection, 'refused', BASE + 1n)).toBeUndefined();
    await connection.query('BEGIN');
    const refused = fence(connection.db).open('refused', BASE);
    await expect(refused).rejects.toMatchObject({ code: 'HOLDFAST_STALE_TOKEN', token: BASE, newest: BASE + 1n });
    await connection.query('ROLLBACK');
  });

  test('what was shown in a transaction that is rolled back was not shown', async () => {
    const connection = await connect();
    await connection.query('BEGIN');
    await fence(connection.db).open('undone', BASE + 1n);
    await connection.query('ROLLBACK');
    expect(await show(connection, 'undone', BASE)).toBeUndefined();
  });

  test('names are told apart byte by byte', async () => {
    const connection = await connect();
    for (const name of ['job', 'JOB', 'job ', 'jöb', 'jo\u0308b', '💥', 'x'.repeat(512)]) {
      expect(await show(connection, name, BASE + 5n)).toBeUndefined();
      expect(await show(connection, name, BASE + 4n)).toBe(BASE + 5n);
    }
    await expect(show(connection, 'x'.repeat(513), 1n)).rejects.toThrow(ConfigError);
  });

  test('a lease says by itself whether it is shared', async () => {
    const connection = await connect();
    const catalog = locks.rwLock(`catalog-${dialect}`);
    const [one, two] = [await catalog.read.acquire(), await catalog.read.acquire()];
    expect(await show(connection, 'catalog', two)).toBeUndefined();
    expect(await show(connection, 'catalog', one)).toBeUndefined(); // readers do not refuse each other
    await Promise.all([one.release(), two.release()]);
    const writer = await catalog.write.acquire();
    expect(await show(connection, 'catalog', writer)).toBeUndefined();
    expect(await show(connection, 'catalog', one)).toBe(writer.token);
    const reader = await writer.downgrade();
    expect(await show(connection, 'catalog', reader)).toBeUndefined();
    expect(await show(connection, 'catalog', writer)).toBe(reader.token);
    await reader.release();
  });

  test('what can’t be fenced is refused', async () => {
    const connection = await connect();
    const permit = await locks.semaphore(`gpu-${dialect}`, 4).acquire();
    await connection.query('BEGIN');
    const wrong = [permit, 5, '5', undefined, 0n, -1n, 2n ** 63n, {}] as never[];
    for (const shown of wrong) await expect(fence(connection.db).open('x', shown)).rejects.toThrow(ConfigError);
    const mutex = await locks.mutex(`m-${dialect}`).acquire();
    await expect(fence(connection.db).open('x', mutex, { shared: true })).rejects.toThrow(ConfigError);
    await connection.query('ROLLBACK');
    await Promise.all([permit.release(), mutex.release()]);
  });

  test('outside of a transaction it is a ConfigError', async () => {
    const connection = await connect();
    await expect(fence(connection.db).open('loose', BASE)).rejects.toThrow(/inside of a transaction/);
    // And shows nothing.
    expect(await show(connection, 'loose', BASE - 1n)).toBeUndefined();
  });

  test.runIf(dialect !== 'sqlite')('on a pool it is a ConfigError', async () => {
    const pool = database.pool();
    await expect(fence(pool.db).open('pooled', BASE)).rejects.toThrow(/pool/);
    await expect(fence(pool.db).open('pooled', BASE)).rejects.toThrow(ConfigError);
    await pool.end();
  });

  test.runIf(dialect !== 'sqlite')('who opens second waits for the first, and is judged by its token', async () => {
    const [old, young] = [await connect(), await connect()];
    await old.query('BEGIN');
    await young.query('BEGIN');
    await fence(young.db).open('pair', BASE + 2n);
    const late = fence(old.db)
      .open('pair', BASE + 1n)
      .catch((error: unknown) => error);
    expect(await waitFor(async () => (await database.waiting()) > 0, 40_000)).toBe(true);
    await young.query('COMMIT');
    expect(await late).toMatchObject({ code: 'HOLDFAST_STALE_TOKEN', newest: BASE + 2n });
    await old.query('ROLLBACK');
  });

  test.runIf(dialect !== 'sqlite')('every open is a write, also with a token that was shown before', async () => {
    const connection = await connect();
    const version = dialect === 'mysql' ? 'opened' : 'xmin';
    const table = dialect === 'mysql' ? 'holdfast_fence' : 'holdfast.holdfast_fence';
    const seen = new Set<string>();
    for (const shared of [true, true, false, false]) {
      expect(await show(connection, 'written', shared ? BASE : BASE + 1n, shared)).toBeUndefined();
      const [row] = await connection.query(
        `SELECT CAST(${version} AS CHAR(20)) AS v FROM ${table} WHERE name = 'written'`,
      );
      seen.add(String(row!['v']));
    }
    expect(seen.size).toBe(4);
  });

  test('several are opened by one call, with one lease or with one for each, all or none', async () => {
    const connection = await connect();
    const opened = async (names: string[], shown: bigint | bigint[]): Promise<unknown> => {
      await connection.query('BEGIN');
      const answer = await fence(connection.db)
        .open(names, shown)
        .catch((error: unknown) => error);
      await connection.query(answer === undefined ? 'COMMIT' : 'ROLLBACK');
      return answer;
    };
    expect(await opened(['b', 'a', 'c'], BASE)).toBeUndefined();
    expect(await opened(['c', 'a'], [BASE + 3n, BASE + 1n])).toBeUndefined();
    expect(await opened(['a', 'c'], BASE + 2n)).toMatchObject({ code: 'HOLDFAST_STALE_TOKEN', lock: 'c' });
    expect(await show(connection, 'a', BASE + 1n)).toBeUndefined();
    for (const [names, shown] of [
      [[], BASE],
      [['a', 'b'], [BASE]],
      [['a', ''], BASE],
      [undefined, BASE],
    ] as [string[], bigint][])
      expect(await opened(names, shown)).toBeInstanceOf(ConfigError);
  });

  test.runIf(dialect !== 'sqlite')('those that one call opens are opened in one order, whoever asks', async () => {
    const crowd = await Promise.all(Array.from({ length: 6 }, () => connect()));
    await Promise.all(
      crowd.map(async (connection, at) => {
        for (let round = 0; round < 15; round += 1) {
          const names = ['x', 'y', 'z'].map((name) => `order ${name}`);
          await connection.query('BEGIN');
          await fence(connection.db).open(at % 2 === 0 ? names : names.toReversed(), BASE);
          await connection.query('COMMIT');
        }
      }),
    );
  });

  test.runIf(dialect !== 'sqlite')('a deadlock is the client’s own error, with what to do', async () => {
    const [one, two] = [await connect(), await connect()];
    for (const name of ['cross 1', 'cross 2']) expect(await show(one, name, BASE)).toBeUndefined();
    for (const connection of [one, two]) await connection.query('BEGIN');
    await fence(one.db).open('cross 1', BASE);
    await fence(two.db).open('cross 2', BASE);
    const crossed = await Promise.allSettled([
      fence(one.db).open('cross 2', BASE),
      fence(two.db).open('cross 1', BASE),
    ]);
    for (const connection of [one, two]) await connection.query('ROLLBACK');
    const [refused] = crossed.filter(({ status }) => status === 'rejected') as PromiseRejectedResult[];
    expect(refused!.reason).toMatchObject({ code: dialect === 'postgres' ? '40P01' : 'ER_LOCK_DEADLOCK' });
    expect(String(refused!.reason)).toMatch(/run the whole transaction again.*open\(\[…\]\).*same order/);
  });

  test('what is opened inside of a savepoint counts with it, and goes with it', async () => {
    const connection = await connect();
    for (const [end, newest] of [
      ['ROLLBACK TO SAVEPOINT inner_one', undefined],
      ['RELEASE SAVEPOINT inner_one', BASE + 2n],
    ] as const) {
      await connection.query('BEGIN');
      await connection.query('SAVEPOINT inner_one');
      await fence(connection.db).open('nested', BASE + 2n);
      await connection.query(end);
      await connection.query('COMMIT');
      expect(await show(connection, 'nested', BASE + 1n)).toBe(newest);
    }
  });

  test.runIf(dialect === 'postgres')('PostgreSQL: a table that is made on the way keeps nobody waiting', async () => {
    const [idle, other, third] = [await connect(), await connect(), await connect()];
    await idle.query('BEGIN');
    await fence(idle.db, { schema: 'quick' }).open('mine', 1n);
    // Its transaction goes on, and neither the table nor the lock of migrations is kept.
    const [free] = await third.query(`SELECT pg_try_advisory_lock(hashtextextended('holdfast migration', 0)) AS free`);
    expect(free).toEqual({ free: true });
    await third.query(`SELECT pg_advisory_unlock_all()`);
    await other.query(`SET lock_timeout = '20s'`);
    await other.query('BEGIN');
    await fence(other.db, { schema: 'quick' }).open('yours', 1n);
    await other.query('COMMIT');
    await idle.query('ROLLBACK');
    expect(await third.query('SELECT name FROM quick.holdfast_fence')).toEqual([{ name: 'yours' }]);
  });

  test.runIf(dialect === 'postgres')(
    'PostgreSQL: it is made in the transaction where that has made its schema, or where there is no way beside',
    async () => {
      const connection = await connect();
      const client = connection.db as Client;
      const adapter = {
        dialect: 'postgres',
        query: async (sql: string, params: readonly unknown[]) => (await client.query(sql, [...params])).rows,
      } as const;
      for (const [at, db] of [client, adapter].entries())
        for (const end of ['ROLLBACK', 'COMMIT']) {
          await connection.query('BEGIN');
          if (db === client) await connection.query(`CREATE SCHEMA own${at}`);
          await fence<object>(db, { schema: `own${at}` }).open('x', 1n);
          await connection.query(end);
        }
      expect(await connection.query('SELECT 1 FROM own0.holdfast_fence, own1.holdfast_fence AS other')).toHaveLength(1);
    },
  );

  test.runIf(dialect !== 'sqlite')(
    'who may not make the table, or not use it, is told what somebody else has to do',
    async () => {
      const [root, poor] = [await connect(), await database.connect('poor')];
      open.push(poor);
      const options = dialect === 'postgres' ? { schema: 'walled' } : { tablePrefix: 'walled_' };
      const failure = async (work: () => Promise<unknown>): Promise<EngineError> => {
        await poor.query('BEGIN');
        const error: unknown = await work().catch((thrown: unknown) => thrown);
        await poor.query('ROLLBACK');
        expect(error).toBeInstanceOf(EngineError);
        expect((error as EngineError).retryable).toBe(false);
        return error as EngineError;
      };
      expect((await failure(() => migrate(poor.db, options))).message).toMatch(
        /may not.*\n(.|\n)*CREATE TABLE(.|\n)*GRANT/,
      );
      if (dialect === 'postgres')
        expect((await failure(() => fence(poor.db, options).open('x', 1n))).message).toMatch(
          /may not.*\n(.|\n)*CREATE TABLE/,
        );
      await migrate(root.db, options);
      expect((await failure(() => fence(poor.db, options).open('x', 1n))).message).toMatch(
        /may not.*\n(.|\n)*GRANT SELECT, INSERT, UPDATE ON/,
      );
    },
  );

  test.runIf(dialect === 'mysql')('MySQL: a table of an earlier version is completed', async () => {
    const connection = await connect();
    const options = { tablePrefix: 'early_' };
    await connection.query(
      'CREATE TABLE early_fence (name VARBINARY(1024) NOT NULL PRIMARY KEY, max_read BIGINT NOT NULL, max_write BIGINT NOT NULL)',
    );
    await connection.query(`INSERT INTO early_fence VALUES ('x', 0, 5)`);
    await connection.query('BEGIN');
    await expect(fence(connection.db, options).open('x', 6n)).rejects.toThrow(
      /earlier version.*\nALTER TABLE early_fence ADD COLUMN opened/,
    );
    await connection.query('ROLLBACK');
    await Promise.all([connection, await connect(), await connect()].map(({ db }) => migrate(db, options)));
    await connection.query('BEGIN');
    await expect(fence(connection.db, options).open('x', 4n)).rejects.toThrow(StaleTokenError);
    await fence(connection.db, options).open('x', 5n);
    await connection.query('COMMIT');
  });

  test('many may make the table at once, and there is one table for all', async () => {
    const options = dialect === 'postgres' ? { schema: 'crowd' } : { tablePrefix: 'crowd_' };
    const connections = await Promise.all(Array.from({ length: 8 }, () => connect()));
    await Promise.all(connections.map(({ db }) => migrate(db, options)));
    await expectOneTable(connections, options);
  });

  test.runIf(dialect === 'postgres')('PostgreSQL: who makes the table waits for others that migrate', async () => {
    const [migrating, ...crowd] = await Promise.all(Array.from({ length: 5 }, () => connect()));
    await migrating!.query(`BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('holdfast migration', 0))`);
    let made = 0;
    const all = crowd.map(({ db }) => migrate(db, { schema: 'waited' }).finally(() => (made += 1)));
    expect(await waitFor(async () => made > 0 || (await database.waiting()) === 4, 40_000)).toBe(true);
    expect(made).toBe(0);
    await migrating!.query('COMMIT');
    await Promise.all(all);
    await expectOneTable(crowd, { schema: 'waited' });
  });

  test.runIf(dialect === 'postgres')('PostgreSQL: many may be the first to miss the table', async () => {
    const connections = await Promise.all(Array.from({ length: 8 }, () => connect()));
    await Promise.all(
      connections.map(async (connection, at) => {
        await connection.query('BEGIN');
        await fence(connection.db, { schema: 'first' }).open(`x${at}`, 1n);
        await connection.query('COMMIT');
      }),
    );
    const shown = await connections[0]!.query('SELECT name FROM first.holdfast_fence ORDER BY name');
    expect(shown.map(({ name }) => name)).toEqual(connections.map((_connection, at) => `x${at}`));
  });

  test.runIf(dialect === 'postgres')(
    'PostgreSQL: also through an adapter it is noticed that there is no transaction',
    async () => {
      const client = (await connect()).db as Client;
      const adapter = {
        dialect: 'postgres',
        query: async (sql: string, params: readonly unknown[]) => (await client.query(sql, [...params])).rows,
      } as const;
      await expect(fence(adapter).open('adapted', BASE + 1n)).rejects.toThrow(/inside of a transaction/);
      await client.query('BEGIN');
      await fence(adapter).open('adapted', BASE);
      await expect(fence(adapter).open('adapted', BASE - 1n)).rejects.toThrow(StaleTokenError);
      await client.query('COMMIT');
    },
  );

  test.runIf(dialect === 'mysql')('MySQL: a connection with callbacks', async () => {
    const { port } = new URL(database.url);
    const connection = createConnection({ host: '127.0.0.1', port: Number(port), user: 'root', database: 'test' });
    const promise = connection.promise();
    await promise.beginTransaction();
    await fence(connection).open('callbacks', BASE);
    await expect(fence(connection).open('callbacks', BASE - 1n)).rejects.toThrow(StaleTokenError);
    await promise.rollback();
    connection.destroy();
  });

  test.runIf(dialect === 'mysql')('MySQL: how a connection casts types is no matter', async () => {
    // What is compiled for the columns of one connection would serve another.
    clearParserCache();
    const connection = createConnection({ uri: database.url, typeCast: oddCast });
    const promise = connection.promise();
    await promise.beginTransaction();
    await fence(connection).open('cast', BASE);
    await expect(fence(connection).open('cast', BASE - 1n)).rejects.toMatchObject({ newest: BASE });
    await promise.rollback();
    expect(await fence(connection).transaction('cast', BASE, () => 'done')).toBe('done');
    connection.destroy();
    clearParserCache();
  });

  test('a table that is missing', async () => {
    const connection = await connect();
    const options = dialect === 'postgres' ? { schema: 'fresh' } : { tablePrefix: 'fresh_' };
    const there = (): Promise<void> => fence(connection.db, { ...options, migrate: false }).open('x', 3n);
    await connection.query('BEGIN');
    await expect(there()).rejects.toThrow(/holdfast schema apply/);
    await connection.query('ROLLBACK');
    if (dialect === 'mysql') {
      // DDL would commit what the user has done so far: it is left undone, and can be rolled back.
      await connection.query('CREATE TABLE work (n INT)');
      await connection.query('BEGIN');
      await connection.query('INSERT INTO work VALUES (1)');
      const refused = fence(connection.db, options).open('x', 1n);
      await expect(refused).rejects.toThrow(EngineError);
      await expect(refused).rejects.toThrow(/CREATE TABLE IF NOT EXISTS fresh_fence/);
      await connection.query('ROLLBACK');
      expect(await connection.query('SELECT * FROM work')).toEqual([]);
      await migrate(connection.db, options);
    } else {
      // It is made on the way; on SQLite it goes with the transaction that made it.
      for (const end of ['ROLLBACK', 'COMMIT']) {
        await connection.query('BEGIN');
        await fence(connection.db, options).open('x', 1n);
        await fence(connection.db, options).open('x', 2n);
        await connection.query(end);
      }
    }
    await connection.query('BEGIN');
    await there();
    await connection.query('COMMIT');
  });

  test.runIf(dialect !== 'sqlite')('the migrations of the engine make it, also where it is there already', async () => {
    for (const before of [false, true]) {
      const options: Record<string, string> =
        dialect === 'postgres' ? { schema: `by${before}` } : { tablePrefix: `by${before}_` };
      if (before) await migrate((await connect()).db, options);
      await using schema = await schemaFromUrl(`${database.url}?${new URLSearchParams(options).toString()}`);
      expect(schema!.print()).toMatch(/CREATE TABLE IF NOT EXISTS .*fence/);
      await schema!.apply();
      const connection = await connect();
      await connection.query('BEGIN');
      await fence(connection.db, { ...options, migrate: false }).open('x', 1n);
      await connection.query('COMMIT');
    }
  });

  test.runIf(dialect === 'postgres')(
    'PostgreSQL: a serialization failure is the user’s, not a stale token',
    async () => {
      for (const level of ['REPEATABLE READ', 'SERIALIZABLE']) {
        const [one, two] = [await connect(), await connect()];
        expect(await show(one, level, BASE)).toBeUndefined();
        await two.query(`BEGIN ISOLATION LEVEL ${level}`);
        await two.query('SELECT 1');
        expect(await show(one, level, BASE + 1n)).toBeUndefined();
        // Stale or not: what it has seen is too old to judge by.
        await expect(fence(two.db).open(level, BASE + 2n)).rejects.toMatchObject({ code: '40001' });
        await two.query('ROLLBACK');
        expect(await show(two, level, BASE + 2n)).toBeUndefined();
      }
    },
  );

  test.runIf(dialect === 'mysql')('MySQL: a snapshot that is older than the fence does not decide', async () => {
    const [one, two] = [await connect(), await connect()];
    await one.query('CREATE TABLE account (id INT PRIMARY KEY, balance INT)');
    await one.query('INSERT INTO account VALUES (1, 100)');
    expect(await show(one, 'account', BASE + 1n)).toBeUndefined();
    for (const [token, newest] of [
      [BASE + 1n, BASE + 2n],
      [BASE + 3n, undefined],
    ] as const) {
      await two.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
      await two.query('START TRANSACTION WITH CONSISTENT SNAPSHOT');
      expect(await show(one, 'account', BASE + 2n)).toBeUndefined();
      const seen = await two.query(`SELECT CAST(max_write AS CHAR) AS w FROM holdfast_fence WHERE name = 'account'`);
      expect(seen).toEqual([{ w: `${newest === undefined ? BASE + 2n : BASE + 1n}` }]);
      const answer = await fence(two.db)
        .open('account', token)
        .catch((error: StaleTokenError) => error.newest);
      expect(answer).toBe(newest);
      await two.query('ROLLBACK');
    }
  });

  test.runIf(dialect === 'mysql')('MySQL: what is read after the fence is what the last holder wrote', async () => {
    const [one, two] = [await connect(), await connect()];
    await one.query('CREATE TABLE IF NOT EXISTS stock (id INT PRIMARY KEY, n INT)');
    await one.query('INSERT INTO stock VALUES (1, 20)');
    await one.query('BEGIN');
    await fence(one.db).open('stock', BASE + 1n);
    await two.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
    await two.query('BEGIN');
    const opened = fence(two.db).open('stock', BASE + 2n);
    expect(await waitFor(async () => (await database.waiting()) > 0, 40_000)).toBe(true);
    await one.query('UPDATE stock SET n = 19 WHERE id = 1');
    await one.query('COMMIT');
    await opened;
    expect(await two.query('SELECT n FROM stock WHERE id = 1')).toEqual([{ n: 19 }]);
    await two.query('COMMIT');
  });

  test.runIf(dialect === 'sqlite')('SQLite: at once, for transactions that must not wait', async () => {
    const connection = await connect();
    const guard = fence(connection.db as InstanceType<typeof DatabaseSync>);
    await connection.query('BEGIN IMMEDIATE');
    guard.openSync('sync', BASE + 1n);
    expect(() => guard.openSync('sync', BASE)).toThrow(StaleTokenError);
    await connection.query('COMMIT');
  });
});

/** Each of them works in the table, and sees what the others did. */
async function expectOneTable(crowd: readonly Connection[], options: object): Promise<void> {
  for (const [at, connection] of crowd.entries()) {
    const guard = fence(connection.db, { ...options, migrate: false });
    await connection.query('BEGIN');
    await guard.open('crowd', BigInt(at + 2));
    await expect(guard.open('crowd', BigInt(at + 1))).rejects.toMatchObject({ newest: BigInt(at + 2) });
    await connection.query('COMMIT');
  }
}

/** What was answered: undefined, or the newest token. */
async function show(
  to: Connection,
  name: string,
  token: Lease | bigint,
  shared?: boolean,
): Promise<bigint | undefined> {
  await to.query('BEGIN');
  try {
    await fence(to.db).open(name, token, { shared });
    await to.query('COMMIT');
    return undefined;
  } catch (error) {
    await to.query('ROLLBACK');
    if (!(error instanceof StaleTokenError)) throw error;
    return error.newest;
  }
}
