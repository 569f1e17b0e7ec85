/** The databases that fences and optimistic rows are tested on, behind one face. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createConnection, createPool, type Pool as MysqlPool } from 'mysql2/promise';
import { Client, Pool as PgPool } from 'pg';
import { startMariadb } from '../../servers/mariadb.js';
import { startPostgres } from '../../servers/postgres.js';
import type { Server } from '../../servers/server.js';

/** Node's own where it has one. */
const { DatabaseSync } = (process.getBuiltinModule('node:sqlite') ??
  (await import('@photostructure/sqlite'))) as typeof import('@photostructure/sqlite');

type Rows = Record<string, unknown>[];

/** One connection, as a user of its library has it. */
export interface Connection {
  /** What is handed to Holdfast. */
  readonly db: object;
  query(sql: string): Promise<Rows>;
  close(): Promise<void>;
}

export interface TestDatabase extends AsyncDisposable {
  readonly dialect: 'postgres' | 'mysql' | 'sqlite';
  /** What a child process connects with. */
  readonly url: string;
  /** @param user `poor` has no right to anything; else it may do all. */
  connect(user?: 'poor'): Promise<Connection>;
  /** What may send each statement over another connection; SQLite has none. */
  pool(connections?: number): { readonly db: object; end(): Promise<void> };
  /** How many connections wait for a row that another has locked. */
  waiting(): Promise<number>;
}

export const DATABASES = {
  postgres: startPg,
  // Or the MySQL of `npm run test:matrix -- mysql-9`.
  mysql: startMysql,
  sqlite: startSqlite,
} as const;

async function startPg(): Promise<TestDatabase> {
  const server: Server = await startPostgres();
  const where = { host: '127.0.0.1', port: server.port, user: 'postgres', database: 'postgres' };
  const connect = async (user?: 'poor'): Promise<Connection> => {
    const client = new Client({ ...where, ...(user && { user }) });
    client.on('error', () => {});
    await client.connect();
    return {
      db: client,
      query: async (sql) => (await client.query(sql)).rows as Rows,
      close: () => client.end(),
    };
  };
  const watcher = await connect();
  await watcher.query('CREATE ROLE poor LOGIN');
  return {
    dialect: 'postgres',
    url: `postgres://postgres@127.0.0.1:${server.port}/postgres`,
    connect,
    pool: (max = 20) => {
      const db = new PgPool({ ...where, max });
      db.on('error', () => {});
      return { db, end: () => db.end() };
    },
    waiting: async () => {
      const sql = `SELECT count(*) AS count FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
      return Number((await watcher.query(sql))[0]!['count']);
    },
    [Symbol.asyncDispose]: async () => {
      await watcher.close();
      await server.stop();
    },
  };
}

async function startMysql(): Promise<TestDatabase> {
  const server: Server = await startMariadb();
  const where = { host: '127.0.0.1', port: server.port, user: 'root', database: 'test' };
  const connect = async (user?: 'poor'): Promise<Connection> => {
    const connection = await createConnection({ ...where, ...(user && { user }) });
    return {
      db: connection,
      query: async (sql) => {
        const [rows] = await connection.query(sql);
        return Array.isArray(rows) ? (rows as Rows) : [];
      },
      close: () => connection.end(),
    };
  };
  const watcher = await connect();
  await watcher.query('CREATE USER poor');
  await watcher.query('GRANT SHOW VIEW ON test.* TO poor');
  return {
    dialect: 'mysql',
    url: `mysql://root@127.0.0.1:${server.port}/test`,
    connect,
    pool: (connectionLimit = 20) => {
      const db: MysqlPool = createPool({ ...where, connectionLimit });
      return { db, end: () => db.end() };
    },
    waiting: async () => {
      // Not innodb_trx: who asks it too often gets an old answer.
      const [row] = await watcher.query(`SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'`);
      return Number(row!['Value']);
    },
    [Symbol.asyncDispose]: async () => {
      await watcher.close();
      await server.stop();
    },
  };
}

async function startSqlite(): Promise<TestDatabase> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-fence-'));
  const file = join(folder, 'app.db');
  return {
    dialect: 'sqlite',
    url: `sqlite:${file}`,
    connect: async () => {
      const database = new DatabaseSync(file);
      database.exec('PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 0');
      return {
        db: database,
        query: async (sql) => database.prepare(sql).all() as Rows,
        close: async () => database.close(),
      };
    },
    pool: () => {
      const database = new DatabaseSync(file);
      return { db: database, end: async () => database.close() };
    },
    waiting: async () => 0,
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}
