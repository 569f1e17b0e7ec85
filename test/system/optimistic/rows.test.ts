/** Optimistic rows on each database. */
import { clearParserCache, createPool } from 'mysql2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ConfigError, ConflictError } from '../../../src/index.js';
import { optimistic } from '../../../src/optimistic/index.js';
import { oddCast } from '../../servers/mariadb.js';
import { type Connection, DATABASES, type TestDatabase } from '../fence/databases.js';

interface Item {
  readonly id: number;
  readonly stock: number;
  readonly note: string | null;
}

const BUYERS = 50;
const STOCK = 20;
class SoldOut extends Error {}

type Seat = Readonly<Record<string, number>>;

function oneMore(row: Seat): Seat {
  return { Stock: Number(row['Stock']) + 1 };
}

/** As people write it: with all that was read. */
function spread(row: Seat): Seat {
  return { ...row, ...oneMore(row) };
}

/** The column that holds a time with microseconds; SQLite has none. */
const TIME = { postgres: 'timestamptz', mysql: 'datetime(6)', sqlite: 'TEXT' } as const;
const COARSE = { postgres: 'timestamp(3)', mysql: 'timestamp(3) NULL', sqlite: 'TEXT' } as const;

describe.each(Object.entries(DATABASES))('%s', (called, start) => {
  const dialect = called as keyof typeof DATABASES;
  let database: TestDatabase;
  let shop: Connection;
  let pool: ReturnType<TestDatabase['pool']>;

  beforeAll(async () => {
    database = await start();
    shop = await database.connect();
    pool = database.pool();
    await shop.query(
      `CREATE TABLE item (id BIGINT PRIMARY KEY, stock INTEGER NOT NULL CHECK (stock >= 0), note VARCHAR(100),
         version BIGINT, updated_at ${TIME[dialect]}, coarse ${COARSE[dialect]})`,
    );
  });
  afterAll(async () => {
    await pool.end();
    await shop.close();
    await database[Symbol.asyncDispose]();
  });

  async function put(id: number, stock: number, version = 1n): Promise<void> {
    await shop.query(`DELETE FROM item WHERE id = ${id}`);
    await shop.query(
      `INSERT INTO item VALUES (${id}, ${stock}, NULL, ${version}, '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05')`,
    );
  }

  async function stockOf(id: number): Promise<number> {
    return Number((await shop.query(`SELECT stock FROM item WHERE id = ${id}`))[0]!['stock']);
  }

  test.each(dialect === 'sqlite' ? ['version'] : ['version', 'updated_at'])(
    '50 buyers of 20 items, by %s: exactly 20 are sold, never below zero',
    async (version) => {
      await put(1, STOCK);
      const items = optimistic<Item>(pool.db, { table: 'item', version });
      const bought = await Promise.all(
        Array.from({ length: BUYERS }, () =>
          items
            .update(
              1,
              async ({ stock }) => {
                if (stock === 0) throw new SoldOut();
                // SQLite answers at once: without this, nobody would come in between.
                await new Promise((resolve) => setImmediate(resolve));
                return { stock: stock - 1 };
              },
              { retries: 1_000 },
            )
            .then(
              () => 'bought',
              (error: unknown) => (error instanceof SoldOut ? 'sold out' : Promise.reject(error as Error)),
            ),
        ),
      );
      expect(bought.filter((answer) => answer === 'bought')).toHaveLength(STOCK);
      expect(await stockOf(1)).toBe(0);
    },
  );

  test('a row that others change each time is a ConflictError, which says how often it was tried', async () => {
    await put(2, 10);
    const items = optimistic<Item>(pool.db, { table: 'item' });
    let calls = 0;
    const update = items.update(
      2,
      async ({ stock }) => {
        calls += 1;
        await shop.query('UPDATE item SET version = version + 1 WHERE id = 2');
        return { stock: stock - 1 };
      },
      { retries: 3 },
    );
    await expect(update).rejects.toMatchObject({ code: 'HOLDFAST_CONFLICT', attempts: 4 });
    await expect(update).rejects.toThrow(ConflictError);
    expect(calls).toBe(4);
    expect(await stockOf(2)).toBe(10);
  });

  test('a try after a conflict goes by the row as it is by then', async () => {
    await put(9, 10);
    const seen: number[] = [];
    const update = optimistic<Item>(pool.db, { table: 'item' }).update(9, async ({ stock }) => {
      seen.push(stock);
      if (seen.length === 1) await shop.query('UPDATE item SET version = version + 1, stock = 5 WHERE id = 9');
      return { stock: stock - 1 };
    });
    expect(await update).toMatchObject({ stock: 4 });
    expect(seen).toEqual([10, 5]);
    expect(await stockOf(9)).toBe(4);
  });

  // SQLite's drivers refuse to read such a column at all, as a number.
  test.runIf(dialect !== 'sqlite')('a version beyond 2^53 is compared in full', async () => {
    const version = 2n ** 60n + 1n;
    await put(3, 10, version);
    const items = optimistic<Item>(pool.db, { table: 'item' });
    const update = items.update(
      3,
      async ({ stock }) => {
        await shop.query(`UPDATE item SET version = version - 1 WHERE id = 3`);
        return { stock: stock - 1 };
      },
      { retries: 0 },
    );
    await expect(update).rejects.toThrow(ConflictError);
    expect(await items.update(3, ({ stock }) => ({ stock: stock - 1 }))).toMatchObject({ stock: 9 });
    const [row] = await shop.query(
      `SELECT CAST(version AS CHAR${dialect === 'mysql' ? '' : '(19)'}) AS v FROM item WHERE id = 3`,
    );
    expect(row).toEqual({ v: `${version}` });
  });

  test.runIf(dialect !== 'sqlite')('a change in the next microsecond is noticed', async () => {
    await put(4, 10);
    const items = optimistic<Item>(pool.db, { table: 'item', version: 'updated_at' });
    const update = items.update(
      4,
      async ({ stock }) => {
        await shop.query(`UPDATE item SET updated_at = '2026-01-02 03:04:05.678902' WHERE id = 4`);
        return { stock: stock - 1 };
      },
      { retries: 0 },
    );
    await expect(update).rejects.toThrow(ConflictError);
    await items.update(4, ({ stock }) => ({ stock: stock - 1 }), { retries: 0 });
    expect(await stockOf(4)).toBe(9);
  });

  // By another server's clock, for example. Who read it before must see that it has changed, whatever our clock says.
  test.runIf(dialect !== 'sqlite')('a time of change that is ahead of the clock is moved on all the same', async () => {
    await put(10, 10);
    await shop.query(`UPDATE item SET updated_at = '2999-01-02 03:04:05.678901' WHERE id = 10`);
    const items = optimistic<Item>(pool.db, { table: 'item', version: 'updated_at' });
    await items.update(10, ({ stock }) => ({ stock: stock - 1 }), { retries: 0 });
    const [row] = await shop.query(
      `SELECT updated_at = '2999-01-02 03:04:05.678902' AS later, stock FROM item WHERE id = 10`,
    );
    expect([Number(row!['later']), Number(row!['stock'])]).toEqual([1, 9]);
  });

  test('a column too coarse to be safe is refused', async () => {
    await put(5, 10);
    const coarse = dialect === 'sqlite' ? ['updated_at', 'coarse'] : ['coarse'];
    for (const version of coarse)
      await expect(optimistic(pool.db, { table: 'item', version }).update(5, () => ({ stock: 1 }))).rejects.toThrow(
        /microseconds/,
      );
    for (const version of ['note', 'nowhere'])
      await expect(optimistic(pool.db, { table: 'item', version }).update(5, () => ({ stock: 1 }))).rejects.toThrow(
        ConfigError,
      );
    expect(await stockOf(5)).toBe(10);
  });

  test('values are bound and names are checked', async () => {
    await put(6, 10);
    const items = optimistic<Item>(pool.db, { table: 'item' });
    const note = `'; DROP TABLE item; -- ? $1 "`;
    expect(await items.update(6, () => ({ note }))).toMatchObject({ stock: 10, note });
    expect(await shop.query('SELECT note FROM item WHERE id = 6')).toEqual([{ note }]);
    expect(await items.update(`' OR '1'='1`, () => ({ stock: 0 })).catch(() => undefined)).toBeUndefined();
    expect(await stockOf(6)).toBe(10);
    for (const table of ['item; DROP TABLE item', 'a.b.c', '', 'x"', 'x`', 5 as never])
      expect(() => optimistic(pool.db, { table })).toThrow(ConfigError);
    const bad = { 'stock = 0 --': 1 } as never;
    await expect(items.update(6, () => bad)).rejects.toThrow(ConfigError);
    for (const fixed of [{ id: 7 }, { version: 9 }, { note: undefined }] as never[])
      await expect(items.update(6, () => fixed)).rejects.toThrow(ConfigError);
  });

  test('no row, no change, no version', async () => {
    await put(7, 10);
    const items = optimistic<Item>(pool.db, { table: 'item' });
    expect(await items.update(999, () => ({ stock: 1 }))).toBeUndefined();
    expect(await items.update(7, () => undefined)).toMatchObject({ stock: 10 });
    await shop.query('UPDATE item SET version = NULL WHERE id = 7');
    await expect(items.update(7, () => ({ stock: 1 }))).rejects.toThrow(/NULL/);
  });

  test('columns are compared as the database compares them, so that no change can undo the version', async () => {
    const quoted = dialect === 'mysql' ? (name: string) => name : (name: string) => `"${name}"`;
    await shop.query(
      `CREATE TABLE seat (${quoted('Id')} BIGINT PRIMARY KEY, ${quoted('Stock')} INTEGER NOT NULL, ${quoted('Version')} BIGINT NOT NULL)`,
    );
    await shop.query(`INSERT INTO seat VALUES (1, 0, 1)`);
    const byDefault = optimistic<Seat>(pool.db, { table: 'seat' });
    // PostgreSQL has no such column: names in quotes are taken as they are.
    await expect(byDefault.update(1, spread)).rejects.toThrow(
      dialect === 'postgres' ? /no column version/ : /must not change/,
    );
    const seats = optimistic<Seat>(pool.db, { table: 'seat', id: 'Id', version: 'Version' });
    for (const changes of [{ Version: 1 }, { Id: 9 }, ...(dialect === 'postgres' ? [] : [{ VERSION: 1 }, { ID: 9 }])])
      await expect(seats.update(1, () => changes)).rejects.toThrow(/must not change/);
    if (dialect !== 'postgres') await expect(seats.update(1, () => ({ stock: 1, Stock: 2 }))).rejects.toThrow(/twice/);
    await Promise.all(Array.from({ length: 20 }, () => seats.update(1, oneMore, { retries: 1_000 })));
    const [row] = await shop.query(`SELECT ${quoted('Stock')} AS stock, ${quoted('Version')} AS version FROM seat`);
    expect([Number(row!['stock']), Number(row!['version'])]).toEqual([20, 21]);
  });

  test('an id that is not unique is refused, and nothing is written', async () => {
    await shop.query('CREATE TABLE twin (a INTEGER, b INTEGER, version INTEGER NOT NULL)');
    await shop.query('INSERT INTO twin VALUES (1, 1, 1), (1, 2, 1), (2, 1, 1)');
    const twins = optimistic<{ b: number }>(pool.db, { table: 'twin', id: 'a' });
    await expect(twins.update(1, () => ({ b: 7 }))).rejects.toThrow(/More than one row/);
    // One that comes between the read and the write is not written either.
    const update = twins.update(2, async () => {
      await shop.query('INSERT INTO twin VALUES (2, 2, 1)');
      return { b: 7 };
    });
    await expect(update).rejects.toThrow(/More than one row/);
    expect(await shop.query('SELECT b FROM twin WHERE b = 7')).toEqual([]);
    for (const id of [true, {}, { id: 1 }, null, undefined, Number.NaN, []])
      await expect(twins.update(id, () => ({ b: 7 }))).rejects.toThrow(ConfigError);
  });

  test('an id that the database only takes for that of a row finds none', async () => {
    await shop.query('CREATE TABLE person (name VARCHAR(20) PRIMARY KEY, age INTEGER, version INTEGER NOT NULL)');
    await shop.query("INSERT INTO person VALUES ('7up', 0, 1), ('8', 0, 1)");
    await put(7, 3);
    // A number and a text are compared as numbers by MySQL, as far as the text is one; PostgreSQL refuses that by itself.
    const tried = [
      () => optimistic<{ age: number }>(pool.db, { table: 'person', id: 'name' }).update(7, () => ({ age: 1 })),
      () => optimistic<{ stock: number }>(pool.db, { table: 'item' }).update('7up', () => ({ stock: 0 })),
    ];
    for (const attempt of tried) {
      const given = await attempt().catch((error: unknown) => error);
      if (dialect === 'postgres' && given !== undefined) expect(given).toMatchObject({ code: '22P02' });
      else expect(given).toBeUndefined();
    }
    expect(await stockOf(7)).toBe(3);
    expect(await shop.query('SELECT name FROM person WHERE age <> 0')).toEqual([]);
    expect(
      await optimistic<{ stock: number }>(pool.db, { table: 'item' }).update('7', () => ({ stock: 2 })),
    ).toBeDefined();
  });

  test.runIf(dialect === 'mysql')('MySQL: how a connection casts types garbles no row', async () => {
    // What is compiled for the columns of one connection would serve another.
    clearParserCache();
    const cast = createPool({ uri: database.url, typeCast: oddCast });
    await put(8, 5);
    const items = optimistic<Item>(cast, { table: 'item' });
    expect(await items.update(8, ({ stock }) => ({ stock: stock - 1 }))).toMatchObject({ id: 8, stock: 4 });
    expect(await stockOf(8)).toBe(4);
    await cast.promise().end();
    clearParserCache();
  });

  test.runIf(dialect === 'sqlite')('SQLite: a table of an attached database is that one', async () => {
    await shop.query("ATTACH ':memory:' AS annex");
    await shop.query('CREATE TABLE annex.shelf (id INTEGER PRIMARY KEY, n INTEGER, version INTEGER NOT NULL)');
    await shop.query('CREATE TABLE shelf (id INTEGER PRIMARY KEY, n INTEGER, version TEXT)');
    await shop.query('INSERT INTO annex.shelf VALUES (1, 0, 1)');
    await optimistic<{ n: number }>(shop.db, { table: 'annex.shelf' }).update(1, ({ n }) => ({ n: n + 5 }));
    const [row] = await shop.query('SELECT n, version FROM annex.shelf');
    expect({ ...row }).toEqual({ n: 5, version: 2 });
  });

  test('a version that can’t grow any more is refused, and so is what is no whole number', async () => {
    const small = { postgres: 'SMALLINT', mysql: 'TINYINT', sqlite: 'INTEGER' }[dialect];
    const last = { postgres: '32767', mysql: '127', sqlite: '9223372036854775807' }[dialect];
    await shop.query(`CREATE TABLE small (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, v ${small} NOT NULL)`);
    await shop.query(`INSERT INTO small VALUES (1, 0, ${BigInt(last) - 1n})`);
    const rows = optimistic<{ n: number }>(pool.db, { table: 'small', version: 'v' });
    if (dialect !== 'sqlite') await rows.update(1, ({ n }) => ({ n: n + 1 }));
    else await shop.query(`UPDATE small SET v = ${last}, n = 1`);
    // SQLite's drivers refuse to read so large a number at all.
    await expect(rows.update(1, ({ n }) => ({ n: n + 1 }))).rejects.toThrow(
      dialect === 'sqlite' ? /./ : /last of its type/,
    );
    expect(Number((await shop.query('SELECT n FROM small'))[0]!['n'])).toBe(1);
    if (dialect !== 'sqlite') return;
    await shop.query(`UPDATE small SET v = 1.5`);
    await expect(rows.update(1, ({ n }) => ({ n: n + 1 }))).rejects.toThrow(/whole number/);
  });

  test('what is no set of columns is refused', async () => {
    await put(11, 10);
    const items = optimistic<Item>(pool.db, { table: 'item' });
    for (const changes of [null, 5, 'stock', [1]] as never[])
      await expect(items.update(11, () => changes)).rejects.toThrow(ConfigError);
  });

  test.runIf(dialect === 'postgres')('what the database refuses because of others is tried again', async () => {
    await put(12, 0);
    const name = String((await shop.query('SELECT current_database() AS name'))[0]!['name']);
    await shop.query(`ALTER DATABASE "${name}" SET default_transaction_isolation = 'serializable'`);
    const strict = database.pool();
    try {
      const items = optimistic<Item>(strict.db, { table: 'item' });
      await Promise.all(
        Array.from({ length: 60 }, () => items.update(12, ({ stock }) => ({ stock: stock + 1 }), { retries: 1_000 })),
      );
      expect(await stockOf(12)).toBe(60);
    } finally {
      await strict.end();
      await shop.query(`ALTER DATABASE "${name}" RESET default_transaction_isolation`);
    }
  });

  test('an abort ends the tries with its own reason', async () => {
    await put(8, 10);
    const stop = new AbortController();
    const update = optimistic<Item>(pool.db, { table: 'item' }).update(
      8,
      async ({ stock }) => {
        await shop.query('UPDATE item SET version = version + 1 WHERE id = 8');
        stop.abort('shutting down');
        return { stock: stock - 1 };
      },
      { retries: 1_000, signal: stop.signal },
    );
    await expect(update).rejects.toBe('shutting down');
  });
});
