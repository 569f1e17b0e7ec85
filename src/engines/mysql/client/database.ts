/**
 * What we need of mysql2: one statement on some connection of a pool, with a deadline. mysql2 has none of its own: a
 * server that hangs is waited for without end, and so is a free connection. What was sent on a connection that did not
 * answer in time may still be carried out.
 *
 * All calls of an engine pass one gate, which keeps a connection back for beats: ten thousand acquires at once must not
 * make a session look dead. Values are numbers and bytes: bytes are written as hexadecimal literals, which mean the same
 * in every character set and sql_mode. Statements are not prepared, so that proxies that multiplex connections work.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ConfigError, EngineError } from '../../../core/errors.js';
import { Queue } from '../../../core/queue.js';
import { explained, isTransient } from './errors.js';

export type Value = number | bigint | Buffer | null;

/** A row as an array: an option of the query, so that it does not depend on those of the pool. */
export type Row = readonly unknown[];

export interface RawConnection {
  query(options: object, done: (error: unknown, result: unknown) => void): unknown;
  release(): void;
  destroy(): void;
  on(event: string, listener: (error?: unknown) => void): unknown;
  removeListener(event: string, listener: (error?: unknown) => void): unknown;
}

export interface RawPool {
  getConnection(done: (error: unknown, connection: RawConnection) => void): void;
  end(done: (error?: unknown) => void): void;
  readonly config?: { readonly connectionLimit?: number };
}

/** Also the pool of 'mysql2/promise', which is one of the others inside. */
export function poolOf(pool: unknown): RawPool {
  const candidates = [pool, (pool as { pool?: unknown } | null)?.pool];
  const raw = candidates.find(
    (candidate): candidate is RawPool & { promise: unknown } =>
      typeof (candidate as { getConnection?: unknown } | undefined)?.getConnection === 'function' &&
      typeof (candidate as { promise?: unknown }).promise === 'function',
  );
  if (raw) return raw;
  throw new ConfigError(
    'mysql() takes a URL like "mysql://user:password@localhost:3306/app", or a pool of mysql2: createPool of "mysql2" or "mysql2/promise".',
  );
}

export interface CallOptions {
  /** For the whole call, waiting for a connection included. Default: 3 s. */
  readonly withinMs?: number;
  /** Goes before all others: beats. */
  readonly urgent?: boolean;
}

export interface Transaction {
  rows(sql: string, values: readonly Value[]): Promise<readonly Row[]>;
  /** How many rows were changed. */
  change(sql: string, values: readonly Value[]): Promise<number>;
}

const WITHIN_MS = 3_000;
const DEFAULT_LIMIT = 10;
/** A transition that InnoDB has rolled back is made again. */
const TRIES = 20;

export class Database {
  readonly #pool: RawPool;
  readonly #owned: boolean;
  readonly #limit: number;
  readonly #waiting = { urgent: new Queue<() => void>(), usual: new Queue<() => void>() };
  readonly #running = new Set<Call>();

  /** @param limit how many calls at once. Default: as many as the pool has connections. */
  constructor(pool: RawPool, owned: boolean, limit = pool.config?.connectionLimit ?? DEFAULT_LIMIT) {
    this.#pool = pool;
    this.#owned = owned;
    this.#limit = Math.max(1, limit);
  }

  /** The rows of a SELECT, or of the first SELECT of a procedure. */
  async rows(sql: string, values: readonly Value[], options: CallOptions = {}): Promise<readonly Row[]> {
    const result = await this.#call(sql, values, options);
    if (!Array.isArray(result)) return [];
    // A procedure's answer has one more part, which says that it is over.
    const last: unknown = result.at(-1);
    const isCall = last !== undefined && !Array.isArray(last);
    return (isCall ? (result.length > 1 ? result[0] : []) : result) as readonly Row[];
  }

  /** How many rows a statement found, and what it said with LAST_INSERT_ID(…). */
  async change(
    sql: string,
    values: readonly Value[],
    options: CallOptions = {},
  ): Promise<{ readonly found: number; readonly said: number }> {
    const header = (await this.#call(sql, values, options)) as { affectedRows: number; insertId: number };
    return { found: header.affectedRows, said: header.insertId };
  }

  /** Several statements on one connection that has the server's lock of this name meanwhile. */
  exclusively<T>(
    name: string,
    withinMs: number,
    work: (run: (sql: string) => Promise<unknown>) => Promise<T>,
  ): Promise<T> {
    return this.#with({ withinMs }, async (connection) => {
      const run = (sql: string): Promise<unknown> => send(connection, sql, []);
      await send(connection, `DO GET_LOCK(?, ?)`, [bytes(name), Math.ceil(withinMs / 1_000)]);
      try {
        return await work(run);
      } finally {
        await send(connection, `DO RELEASE_LOCK(?)`, [bytes(name)]);
      }
    }).catch((error: unknown) => {
      throw explained(error);
    });
  }

  /**
   * Several statements in one transaction, which is made again if InnoDB has rolled it back.
   *
   * A client may stop in the middle, with rows locked: after the time that the call may take, the server ends its
   * connection. Nor does the server let it wait for a row for longer than anybody waits for the answer.
   */
  transact<T>(work: (tx: Transaction) => Promise<T>, options: CallOptions = {}): Promise<T> {
    const seconds = Math.ceil((options.withinMs ?? WITHIN_MS) / 1_000);
    return this.#repeat(options, async (connection) => {
      const run = (sql: string, values: readonly Value[] = []): Promise<unknown> => send(connection, sql, values);
      await run(`SET SESSION wait_timeout = ${seconds}, innodb_lock_wait_timeout = 1, autocommit = 0`);
      try {
        await run('SET TRANSACTION ISOLATION LEVEL READ COMMITTED');
        const answer = await work({
          rows: async (sql, values) => (await run(sql, values)) as readonly Row[],
          change: async (sql, values) => ((await run(sql, values)) as { affectedRows: number }).affectedRows,
        });
        await run('COMMIT');
        return answer;
      } catch (error) {
        // Else the next statement would commit a half of it.
        await run('ROLLBACK').catch(() => connection.destroy());
        throw error;
      } finally {
        await run('SET SESSION wait_timeout = DEFAULT, innodb_lock_wait_timeout = DEFAULT, autocommit = DEFAULT').catch(
          () => connection.destroy(),
        );
      }
    });
  }

  /** Finds rows, locked, and does one thing to them if there are any. */
  async transaction(
    find: string,
    values: readonly Value[],
    change: (found: readonly Row[]) => { readonly sql: string; readonly values: readonly Value[] },
  ): Promise<void> {
    await this.#with({}, async (connection) => {
      await send(connection, 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED', []);
      await send(connection, 'START TRANSACTION', []);
      try {
        const found = (await send(connection, find, values)) as readonly Row[];
        const next = change(found);
        if (found.length > 0) await send(connection, next.sql, next.values);
        await send(connection, 'COMMIT', []);
      } catch (error) {
        await send(connection, 'ROLLBACK', []);
        throw error;
      }
    });
  }

  async close(): Promise<void> {
    if (!this.#owned) return;
    await new Promise<void>((resolve) => this.#pool.end(() => resolve()));
  }

  #call(sql: string, values: readonly Value[], options: CallOptions): Promise<unknown> {
    return this.#repeat(options, (connection) => send(connection, sql, values));
  }

  async #repeat<T>(options: CallOptions, work: (connection: RawConnection) => Promise<T>): Promise<T> {
    const end = performance.now() + (options.withinMs ?? WITHIN_MS);
    for (let attempt = 1; ; attempt += 1) {
      try {
        const left = { ...options, withinMs: Math.max(1, end - performance.now()) };
        return await this.#with(left, work);
      } catch (error) {
        if (!isTransient(error) || attempt === TRIES || performance.now() > end) throw explained(error);
      }
      await sleep(Math.random() * attempt);
    }
  }

  /** One connection for as long as `work` takes, but not longer than allowed. */
  #with<T>(options: CallOptions, work: (connection: RawConnection) => Promise<T>): Promise<T> {
    const { withinMs = WITHIN_MS, urgent = false } = options;
    return new Promise((resolve, reject) => {
      const call = new Call(withinMs, () => {
        this.#leave(call);
        reject(new EngineError(call.connection ? SILENT : exhausted(this.#limit)));
      });
      this.#perform(call, urgent, work)
        .then(resolve, reject)
        .finally(() => {
          call.end();
          this.#leave(call);
        });
    });
  }

  async #perform<T>(call: Call, urgent: boolean, work: (connection: RawConnection) => Promise<T>): Promise<T> {
    await this.#enter(call, urgent);
    call.connection = await this.#connection(() => call.late);
    return work(call.connection);
  }

  #connection(isAbandoned: () => boolean): Promise<RawConnection> {
    if (isAbandoned()) return Promise.reject(new EngineError(SILENT));
    return new Promise((resolve, reject) => {
      this.#pool.getConnection((error, connection) => {
        if (error) return reject(error);
        if (!isAbandoned()) return resolve(connection);
        connection.release();
        return reject(new EngineError(SILENT));
      });
    });
  }

  // --- the gate -------------------------------------------------------------------------------------------------

  async #enter(call: Call, urgent: boolean): Promise<void> {
    const most = urgent ? this.#limit : Math.max(1, this.#limit - 1);
    while (!call.late && this.#running.size >= most) {
      await new Promise<void>((resolve) => {
        (urgent ? this.#waiting.urgent : this.#waiting.usual).push(resolve);
      });
    }
    if (!call.late) this.#running.add(call);
  }

  /** Also when it is only late: what does not answer must not keep the others from asking. */
  #leave(call: Call): void {
    if (this.#running.delete(call)) (this.#waiting.urgent.shift() ?? this.#waiting.usual.shift())?.();
  }
}

/**
 * A call with its deadline. A connection that is only slow is kept: to make a new one for each late answer would finish
 * off a server that is overloaded. One that has not answered after the same time again is destroyed.
 */
class Call {
  connection: RawConnection | undefined;
  late = false;
  #timer: NodeJS.Timeout;

  constructor(withinMs: number, onLate: () => void) {
    this.#timer = setTimeout(() => {
      this.late = true;
      this.#timer = setTimeout(() => this.#destroy(), withinMs);
      this.#timer.unref();
      onLate();
    }, withinMs);
  }

  end(): void {
    clearTimeout(this.#timer);
    // After an error of the server it is as good as before; a broken one the pool knows by itself.
    this.connection?.release();
    this.connection = undefined;
  }

  #destroy(): void {
    this.connection?.destroy();
    this.connection = undefined;
  }
}

const SILENT = 'The database did not answer in time.';

function exhausted(limit: number): string {
  return (
    `No connection to the database became free in time. A pool has at most ${limit}: if the server is well, others use all of ` +
    'them. Raise connectionLimit, or give Holdfast a pool of its own.'
  );
}

export function send(connection: RawConnection, sql: string, values: readonly Value[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    // The options that a pool may have set otherwise.
    const options = { sql: bound(sql, values), rowsAsArray: true, typeCast: true, nestTables: false };
    connection.query(options, (error, result) => {
      if (error) reject(error);
      else resolve(result);
    });
  });
}

/** By ourselves: how mysql2 escapes depends on options of the pool, and it knows no integers of 64 bits. */
export function bound(sql: string, values: readonly Value[]): string {
  let at = 0;
  return sql.replaceAll('?', () => {
    const value = values[at++]!;
    if (value === null) return 'NULL';
    return Buffer.isBuffer(value) ? `X'${value.toString('hex')}'` : value.toString();
  });
}

export function bytes(text: string): Buffer {
  return Buffer.from(text);
}

export function text(value: unknown): string {
  return Buffer.isBuffer(value) ? value.toString() : String(value);
}

/** Less than the core's own deadline, so that what is told is what we know. */
export function callMs(ttlMs: number): number {
  return Math.min(3_000, ttlMs * 0.25);
}
