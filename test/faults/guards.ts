/**
 * Real things that locks protect, each read and written through its fence: a row of PostgreSQL, MySQL or SQLite, a key of
 * Redis, something behind HTTP. Found by URL. Without a token they are unguarded, which is the control.
 *
 * A read and a write are transactions of their own, with whatever comes in between: the second shows its token again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from '@photostructure/sqlite';
import { StaleTokenError } from 'holdfast';
import { fence, fencedFetch, migrate } from 'holdfast/fence';
import { Redis } from 'ioredis';
import { createPool } from 'mysql2/promise';
import { Pool } from 'pg';
import type { Response as Answer } from './resource.js';

export interface Access {
  readonly name: string;
  /** Undefined: it is not shown. */
  readonly token: bigint | undefined;
  readonly shared: boolean;
}

export interface Guarded {
  read(access: Access): Promise<Answer>;
  write(access: Access, value: number): Promise<Answer>;
  close(): Promise<unknown>;
}

const table = (text: string): string => `CREATE TABLE IF NOT EXISTS guarded (name ${text} PRIMARY KEY, value INTEGER)`;

/** Once, before anybody uses it. */
export async function prepareGuarded(url: string): Promise<void> {
  if (url.startsWith('postgres:')) {
    const pool = new Pool({ connectionString: url });
    await migrate(pool);
    await pool.query(table('text'));
    await pool.end();
  } else if (url.startsWith('mysql:')) {
    const pool = createPool(url);
    await migrate(pool);
    await pool.query(table('VARCHAR(200)'));
    await pool.end();
  } else if (url.startsWith('sqlite:')) {
    const database = new DatabaseSync(url.slice('sqlite:'.length));
    database.exec(`PRAGMA journal_mode = WAL; ${table('TEXT')}`);
    await migrate(database);
    database.close();
  }
}

export function guardedBy(url: string): Guarded {
  if (url.startsWith('postgres:')) return new PostgresRow(url);
  if (url.startsWith('mysql:')) return new MysqlRow(url);
  if (url.startsWith('sqlite:')) return new SqliteRow(url.slice('sqlite:'.length));
  if (url.startsWith('redis:')) return new RedisKey(url);
  return new Behind(url);
}

/** Stale is an answer; everything else is not known. */
async function answered(value: Promise<number>): Promise<Answer> {
  try {
    return { ok: true, value: await value };
  } catch (error) {
    if (error instanceof StaleTokenError) return { ok: false };
    throw error;
  }
}

class PostgresRow implements Guarded {
  readonly #pool: Pool;

  constructor(url: string) {
    this.#pool = new Pool({ connectionString: url });
    this.#pool.on('error', () => {});
    // A pool listens only to those that nobody uses. That one broke is told by what fails on it.
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  read(access: Access): Promise<Answer> {
    return this.#transaction(access, 'SELECT value FROM guarded WHERE name = $1', [access.name]);
  }

  write(access: Access, value: number): Promise<Answer> {
    const upsert = `INSERT INTO guarded VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2 RETURNING value`;
    return this.#transaction(access, upsert, [access.name, value]);
  }

  close(): Promise<unknown> {
    return this.#pool.end();
  }

  #transaction({ name, token, shared }: Access, sql: string, values: unknown[]): Promise<Answer> {
    return answered(
      (async () => {
        const client = await this.#pool.connect();
        let broken = true;
        try {
          await client.query('BEGIN');
          if (token !== undefined) await fence(client).open(name, token, { shared });
          const { rows } = await client.query<{ value: number }>(sql, values);
          await client.query('COMMIT');
          broken = false;
          return rows[0]?.value ?? 0;
        } finally {
          // A connection that is given up ends its transaction.
          client.release(broken);
        }
      })(),
    );
  }
}

class MysqlRow implements Guarded {
  readonly #pool: ReturnType<typeof createPool>;

  constructor(url: string) {
    this.#pool = createPool(url);
  }

  read(access: Access): Promise<Answer> {
    return this.#transaction(access, undefined);
  }

  write(access: Access, value: number): Promise<Answer> {
    return this.#transaction(access, value);
  }

  close(): Promise<unknown> {
    return this.#pool.end();
  }

  #transaction({ name, token, shared }: Access, value: number | undefined): Promise<Answer> {
    return answered(
      (async () => {
        const connection = await this.#pool.getConnection();
        try {
          await connection.beginTransaction();
          if (token !== undefined) await fence(connection).open(name, token, { shared });
          if (value !== undefined)
            await connection.query('INSERT INTO guarded VALUES (?, ?) ON DUPLICATE KEY UPDATE value = ?', [
              ...[name, value, value],
            ]);
          const [rows] = await connection.query('SELECT value FROM guarded WHERE name = ?', [name]);
          await connection.commit();
          connection.release();
          return (rows as { value: number }[])[0]?.value ?? 0;
        } catch (error) {
          connection.destroy();
          throw error;
        }
      })(),
    );
  }
}

class SqliteRow implements Guarded {
  readonly #database: InstanceType<typeof DatabaseSync>;

  constructor(file: string) {
    this.#database = new DatabaseSync(file);
    this.#database.exec('PRAGMA busy_timeout = 0');
  }

  read(access: Access): Promise<Answer> {
    return this.#transaction(access, undefined);
  }

  write(access: Access, value: number): Promise<Answer> {
    return this.#transaction(access, value);
  }

  async close(): Promise<void> {
    this.#database.close();
  }

  async #transaction({ name, token, shared }: Access, value: number | undefined): Promise<Answer> {
    const database = this.#database;
    while (!this.#begun()) await sleep(2);
    return answered(
      // Without a pause: other loops of this process use the same connection.
      (async () => {
        try {
          if (token !== undefined) fence(database).openSync(name, token, { shared });
          if (value !== undefined)
            database
              .prepare('INSERT INTO guarded VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value')
              .run(name, value);
          const row = database.prepare('SELECT value FROM guarded WHERE name = ?').get(name) as
            { value: number } | undefined;
          database.exec('COMMIT');
          return row?.value ?? 0;
        } catch (error) {
          if (database.isTransaction) database.exec('ROLLBACK');
          throw error;
        }
      })(),
    );
  }

  /** Another process may be in a transaction. */
  #begun(): boolean {
    try {
      this.#database.exec('BEGIN IMMEDIATE');
      return true;
    } catch (error) {
      if (error instanceof Error && /locked|busy/i.test(error.message)) return false;
      throw error;
    }
  }
}

class RedisKey implements Guarded {
  readonly #redis: Redis;

  constructor(url: string) {
    this.#redis = new Redis(url);
    this.#redis.on('error', () => {});
  }

  read({ name, token, shared }: Access): Promise<Answer> {
    const key = `{${name}}:value`;
    if (token === undefined) return answered(this.#redis.get(key).then(Number));
    return answered(
      fence(this.#redis)
        .open(name, token, { shared })
        .then((open) => open.get(key))
        .then(Number),
    );
  }

  write({ name, token }: Access, value: number): Promise<Answer> {
    const key = `{${name}}:value`;
    if (token === undefined) return answered(this.#redis.set(key, value).then(() => value));
    return answered(
      fence(this.#redis)
        .open(name, token)
        .then((open) => open.set(key, `${value}`))
        .then(() => value),
    );
  }

  async close(): Promise<void> {
    this.#redis.disconnect();
  }
}

class Behind implements Guarded {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  read(access: Access): Promise<Answer> {
    return this.#request(access, { method: 'GET' });
  }

  write(access: Access, value: number): Promise<Answer> {
    return this.#request(access, { method: 'PUT', body: `${value}` });
  }

  async close(): Promise<void> {}

  #request({ name, token, shared }: Access, init: RequestInit): Promise<Answer> {
    const http = token === undefined ? fetch : fencedFetch(token, { shared });
    return answered(
      (async () => {
        const response = await http(`${this.#url}/${token === undefined ? 'open' : 'fenced'}/${name}`, init);
        if (response.status !== 200) throw new Error(`HTTP ${response.status}`);
        return Number(await response.text());
      })(),
    );
  }
}
