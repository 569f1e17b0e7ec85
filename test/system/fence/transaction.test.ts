/** `fence(db).transaction`: begin, open, commit or roll back. */
import type { DatabaseSync } from '@photostructure/sqlite';
import { createPool as createCallbackPool } from 'mysql2';
import { createPool, type Pool as MysqlPool, type PoolConnection } from 'mysql2/promise';
import { type Client, Pool as PgPool, type PoolClient } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, expectTypeOf, test } from 'vitest';
import { fence, type FenceOn, type SqlFence } from '../../../src/fence/index.js';
import { ConfigError, EngineError, Holdfast, StaleTokenError } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { waitFor } from '../../servers/wait.js';
import { type Connection, DATABASES, type TestDatabase } from './databases.js';

async function run(tx: object, sql: string): Promise<void> {
  if ('exec' in tx) (tx as InstanceType<typeof DatabaseSync>).exec(sql);
  else await (tx as Client).query(sql);
}

describe.each(Object.entries(DATABASES))('%s', (dialect, start) => {
  let database: TestDatabase;
  let bank: Connection;
  let pool: ReturnType<TestDatabase['pool']>;
  const locks = new Holdfast('memory:');

  beforeAll(async () => {
    database = await start();
    bank = await database.connect();
    await bank.query('CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)');
    await bank.query('INSERT INTO account VALUES (1, 100)');
    pool = database.pool();
  });
  afterEach(() => bank.query('UPDATE account SET balance = 100'));
  afterAll(async () => {
    await locks.close();
    await pool?.end();
    await bank?.close();
    await database?.[Symbol.asyncDispose]();
  });

  const guard = (): SqlFence => fence(pool.db);
  const balance = async (): Promise<number> => Number((await bank.query('SELECT balance FROM account'))[0]!['balance']);
  const spend = 'UPDATE account SET balance = balance - 5 WHERE id = 1';

  // The first one: nobody has made the table.
  test('commits what its function did, and gives what it gives', async () => {
    const lease = await locks.mutex('a').acquire();
    const given = await guard().transaction('a', lease, async (tx) => {
      await run(tx, spend);
      return 'spent';
    });
    expect(given).toBe('spent');
    expect(await balance()).toBe(95);
    await lease.release();
  });

  test('who was overtaken is refused, and its function does not run', async () => {
    await guard().transaction('b', 2n, () => {});
    let ran = false;
    const refused = guard().transaction('b', 1n, () => (ran = true));
    await expect(refused).rejects.toThrow(StaleTokenError);
    expect(ran).toBe(false);
    await guard().transaction('b', 2n, () => {});
  });

  test('is rolled back when its function throws, with what was shown, and rejects with that', async () => {
    const own = new Error('my own');
    const failed = guard().transaction('c', 2n, async (tx) => {
      await run(tx, spend);
      throw own;
    });
    await expect(failed).rejects.toBe(own);
    expect(await balance()).toBe(100);
    await guard().transaction(['c', 'd'], 1n, () => {});
  });

  test('of two, the second waits for the first, and sees what it did', async () => {
    const seen: number[] = [];
    await Promise.all(
      Array.from({ length: 10 }, () =>
        guard().transaction('e', 1n, async (tx) => {
          const read = await balanceIn(tx);
          seen.push(read);
          await run(tx, `UPDATE account SET balance = ${read - 1} WHERE id = 1`);
        }),
      ),
    );
    expect(seen).toEqual(Array.from({ length: 10 }, (_, at) => 100 - at));
    expect(await balance()).toBe(90);
  });

  test('inside of another on the same connection it is refused, and so is one in a transaction of the user’s', async () => {
    const connection = await database.connect();
    const own = fence(connection.db);
    const nested = own.transaction('f', 1n, () => own.transaction('g', 1n, () => 'never'));
    await expect(nested).rejects.toThrow(/in a transaction already/);
    await connection.query('BEGIN');
    await connection.query(spend);
    await expect(own.transaction('f', 1n, () => 'never')).rejects.toThrow(ConfigError);
    await connection.query('ROLLBACK');
    expect(await balance()).toBe(100);
    // Side by side they take turns.
    const order: string[] = [];
    await Promise.all(
      ['one', 'two', 'three'].map((who) =>
        own.transaction('f', 1n, async () => {
          order.push(`${who} begins`);
          await new Promise((resolve) => setImmediate(resolve));
          order.push(`${who} ends`);
        }),
      ),
    );
    expect(order).toEqual(['one', 'two', 'three'].flatMap((who) => [`${who} begins`, `${who} ends`]));
    await connection.close();
  });

  test('that ended inside of its function is an error, whatever that gives', async () => {
    const ended = guard().transaction('h', 1n, async (tx) => {
      await run(tx, 'ROLLBACK');
      return 'all is well';
    });
    await expect(ended).rejects.toThrow(/over before its function had ended/);
    await guard().transaction('h', 1n, () => {});
  });

  test.runIf(dialect === 'postgres')(
    'that failed inside of its function is an error, though that caught it',
    async () => {
      const failed = guard().transaction('i', 1n, async (tx) => {
        await run(tx, spend);
        await run(tx, 'SELECT 1 / 0').catch(() => {});
        return 'all is well';
      });
      await expect(failed).rejects.toThrow(EngineError);
      await expect(failed).rejects.toThrow(/Nothing was committed/);
      expect(await balance()).toBe(100);
    },
  );

  test.runIf(dialect !== 'sqlite')('gives its connection back, whatever happens, and not a broken one', async () => {
    const one = database.pool(1);
    const only = fence(one.db);
    await only.transaction('j', 5n, () => {});
    await expect(only.transaction('j', 4n, () => {})).rejects.toThrow(StaleTokenError);
    await expect(only.transaction('j', 'x' as never, () => {})).rejects.toThrow(ConfigError);
    await expect(only.transaction('', 5n, () => {})).rejects.toThrow(ConfigError);
    await expect(only.transaction('j', 5n, undefined as never)).rejects.toThrow(ConfigError);
    const killed = only.transaction('j', 5n, async (tx) => {
      const { processID, threadId } = tx as { processID?: number; threadId?: number };
      await bank.query(processID ? `SELECT pg_terminate_backend(${processID})` : `KILL ${threadId}`);
      await waitFor(
        () =>
          run(tx, 'SELECT 1').then(
            () => false,
            () => true,
          ),
        40_000,
      );
      return 'all is well';
    });
    await expect(killed).rejects.toThrow();
    expect(await only.transaction('j', 6n, () => 'works')).toBe('works');
    await one.end();
  });

  test.runIf(dialect !== 'sqlite')(
    'a COMMIT without an answer is told as that: it may have been carried out; the connection is not used again',
    async () => {
      const url = new URL(database.url);
      await using proxy = await FaultProxy.start(Number(url.port));
      url.port = `${proxy.port}`;
      const far =
        dialect === 'postgres'
          ? new PgPool({ connectionString: url.href, max: 1 })
          : createPool({ uri: url.href, connectionLimit: 1 });
      const lost = proxy.loseReplyOf((request) => request.includes('COMMIT'));
      const failed = fence(far).transaction('unanswered', 1n, (tx) => run(tx, spend));
      const error: unknown = await failed.catch((reason: unknown) => reason);
      await lost;
      expect(error).toBeInstanceOf(EngineError);
      expect(error).toMatchObject({
        retryable: false,
        message: expect.stringMatching(/may have been committed/) as string,
      });
      expect((error as Error).cause).toBeInstanceOf(Error);
      expect(await balance()).toBe(95);
      expect(await fence(far).transaction('unanswered', 1n, () => 'works')).toBe('works');
      await far.end();
    },
  );

  test.runIf(dialect === 'mysql')('MySQL: a pool with callbacks', async () => {
    const callbacks = createCallbackPool({ uri: database.url });
    const rows = await fence(callbacks).transaction(
      'k',
      1n,
      (tx) => new Promise((resolve) => tx.query('SELECT 7 AS seven', (_error, found) => resolve(found))),
    );
    expect(rows).toEqual([{ seven: 7 }]);
    await new Promise((resolve) => callbacks.end(resolve));
  });

  test.runIf(dialect !== 'sqlite')('an adapter has no transactions of its own to offer', async () => {
    const adapter = { dialect: 'mysql', query: async () => [] } as const;
    await expect(fence(adapter).transaction('l', 1n, () => {})).rejects.toThrow(/its library/);
  });

  async function balanceIn(tx: object): Promise<number> {
    const sql = 'SELECT balance FROM account WHERE id = 1';
    if (dialect === 'sqlite')
      return ((tx as InstanceType<typeof DatabaseSync>).prepare(sql).get() as { balance: number }).balance;
    const answer = await (tx as { query(text: string): Promise<unknown> }).query(sql);
    const rows = Array.isArray(answer) ? (answer[0] as unknown[]) : (answer as { rows: unknown[] }).rows;
    return (rows[0] as { balance: number }).balance;
  }
});

test('the function gets a connection of its library', () => {
  type TxOf<D extends object> = FenceOn<D> extends { transaction: infer M } ? Received<M> : never;
  type Received<M> = M extends (a: never, b: never, work: (tx: infer Tx) => never, c?: never) => unknown ? Tx : never;
  expectTypeOf<TxOf<PgPool>>().toEqualTypeOf<PoolClient>();
  expectTypeOf<TxOf<Client>>().toEqualTypeOf<Client>();
  expectTypeOf<TxOf<MysqlPool>>().toEqualTypeOf<PoolConnection>();
  expectTypeOf<TxOf<InstanceType<typeof DatabaseSync>>>().toEqualTypeOf<InstanceType<typeof DatabaseSync>>();
});
