/**
 * One statement on some connection of a pool, or several, with a deadline. mysql2 has none of its own: a
 * server that hangs is waited for without end, and so is a free connection. What was sent on a connection that did not
 * answer in time may still be carried out.
 *
 * All calls of an engine pass one gate, which keeps a connection back for beats: ten thousand acquires at once must not
 * make a session look dead.
 */
import { EngineError } from '../../../core/errors.js';
import { Queue } from '../../../core/queue.js';
import { clearTimeout, performance, setTimeout, sleep } from '../../../core/real-time.js';
import { orStranger } from '../../../kit/stranger.js';
import { MigrationLockError } from '../../../sql/errors.js';
import { type Connections, type Lent, SILENT } from './connections.js';
import { explained, isTransient } from './errors.js';
import { bytes, type Row, send, text, type Value } from './port.js';
import type { Settings } from './settings.js';

export interface CallOptions {
  /** For the whole call, waiting for a connection included. Default: 3 s. */
  readonly withinMs?: number;
  /** Goes before all others: beats. */
  readonly urgent?: boolean;
  /** Does not wait until a new server is prepared: what prepares it. */
  readonly unprepared?: boolean;
}

export interface Transaction {
  rows(sql: string, values: readonly Value[]): Promise<readonly Row[]>;
  /** How many rows were changed. */
  change(sql: string, values: readonly Value[]): Promise<number>;
}

interface WithOptions extends CallOptions {
  /** Of the session, beside those that all our statements need. */
  readonly settings?: Settings;
}

const WITHIN_MS = 3_000;
const DEFAULT_LIMIT = 10;
const ASK_AGAIN_MS = 50;
/** A transition that InnoDB has rolled back is made again. */
const TRIES = 20;

export class Database {
  readonly #connections: Connections;
  readonly #limit: number;
  readonly #waiting = { urgent: new Queue<() => void>(), usual: new Queue<() => void>() };
  readonly #running = new Set<Call>();

  /** @param limit how many calls at once. Default: as many as the pool has connections. */
  constructor(connections: Connections, limit = connections.pool.config?.connectionLimit ?? DEFAULT_LIMIT) {
    this.#connections = connections;
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

  /**
   * Several statements on one connection that has the server's lock of this name meanwhile. It asks for that again and again: a
   * wait inside the server would go on after we have given up.
   */
  exclusively<T>(
    name: string,
    { patienceMs, withinMs }: { readonly patienceMs: number; readonly withinMs: number },
    work: (run: (sql: string) => Promise<unknown>) => Promise<T>,
  ): Promise<T> {
    return this.#with({ withinMs: patienceMs + withinMs, unprepared: true }, async ({ connection }) => {
      const ask = async (sql: string): Promise<unknown> =>
        ((await send(connection, sql, [bytes(name)])) as readonly Row[])[0]?.[0];
      const end = performance.now() + patienceMs;
      while (Number(await ask('SELECT GET_LOCK(?, 0) AS got')) !== 1) {
        if (performance.now() > end)
          throw new MigrationLockError(name, holder(await ask('SELECT IS_USED_LOCK(?) AS holder')));
        await sleep(ASK_AGAIN_MS);
      }
      try {
        return await work((sql) => send(connection, sql));
      } finally {
        await ask('SELECT RELEASE_LOCK(?) AS freed');
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
    const settings = { wait_timeout: seconds, innodb_lock_wait_timeout: 1, autocommit: 0 };
    return this.#repeat({ ...options, settings }, async (lent) => {
      const run = (sql: string, values: readonly Value[] = []): Promise<unknown> => send(lent.connection, sql, values);
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
        await run('ROLLBACK').catch(() => lent.destroy());
        throw error;
      }
    });
  }

  /** Finds rows, locked, and does one thing to them if there are any. */
  async transaction(
    find: string,
    values: readonly Value[],
    change: (found: readonly Row[]) => { readonly sql: string; readonly values: readonly Value[] },
  ): Promise<void> {
    await this.#with({}, async ({ connection }) => {
      await send(connection, 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED');
      await send(connection, 'START TRANSACTION');
      try {
        const found = (await send(connection, find, values)) as readonly Row[];
        const next = change(found);
        if (found.length > 0) await send(connection, next.sql, next.values);
        await send(connection, 'COMMIT');
      } catch (error) {
        await send(connection, 'ROLLBACK');
        throw error;
      }
    });
  }

  close(): Promise<void> {
    return this.#connections.end();
  }

  #call(sql: string, values: readonly Value[], options: CallOptions): Promise<unknown> {
    return this.#repeat(options, async (lent) => {
      const result = await send(lent.connection, sql, values);
      if (!isCommitted(result)) {
        // Somebody who shares the pool has set the session otherwise since we looked.
        lent.forget();
        await send(lent.connection, 'COMMIT');
      }
      return result;
    });
  }

  async #repeat<T>(options: WithOptions, work: (lent: Lent) => Promise<T>): Promise<T> {
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
  #with<T>(options: WithOptions, work: (lent: Lent) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const call = new Call(options.withinMs ?? WITHIN_MS, () => {
        this.#leave(call);
        reject(new EngineError(call.lent ? SILENT : exhausted(this.#limit)));
      });
      this.#perform(call, options, work)
        .then(resolve, reject)
        .finally(() => {
          call.end();
          this.#leave(call);
        });
    });
  }

  async #perform<T>(call: Call, options: WithOptions, work: (lent: Lent) => Promise<T>): Promise<T> {
    if (!options.unprepared) await this.#connections.tenure.arrived();
    await this.#enter(call, options.urgent ?? false);
    call.lent = await this.#connections.take(() => call.late);
    const { lent } = call;
    try {
      await lent.prepare(options.settings);
      return await work(lent);
    } catch (error) {
      lent.failed(error);
      throw error;
    }
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
  lent: Lent | undefined;
  late = false;
  readonly #withinMs: number;
  #timer: NodeJS.Timeout;

  constructor(withinMs: number, onLate: () => void) {
    this.#withinMs = withinMs;
    this.#timer = setTimeout(() => {
      this.late = true;
      this.#timer = setTimeout(() => this.#destroy(), withinMs);
      this.#timer.unref();
      onLate();
    }, withinMs);
  }

  end(): void {
    clearTimeout(this.#timer);
    // After most errors of the server it is as good as before; a broken one the pool knows by itself.
    this.lent?.giveBack(this.#withinMs);
    this.lent = undefined;
  }

  #destroy(): void {
    this.lent?.destroy();
    this.lent = undefined;
  }
}

/** A bit of the server's status: each statement is committed by itself. */
const AUTOCOMMIT = 2;

/** Whether what a statement did is committed, by what is said when it is over. Rows alone say nothing. */
function isCommitted(result: unknown): boolean {
  const last: unknown = Array.isArray(result) ? result.at(-1) : result;
  const { serverStatus } = (last ?? {}) as { serverStatus?: unknown };
  return typeof serverStatus !== 'number' || (serverStatus & AUTOCOMMIT) !== 0;
}

/** NULL: it is free by now. */
function holder(connection: unknown): string | undefined {
  return connection === null || connection === undefined ? undefined : `connection ${text(connection)}`;
}

function exhausted(limit: number): string {
  return (
    `No connection to the database became free in time. A pool has at most ${limit}: if the server is well, others use all of ` +
    `them. Raise connectionLimit, or give Holdfast a pool of its own. ${orStranger('MySQL')}`
  );
}

/** Less than the core's own deadline, so that what is told is what we know. */
export function callMs(ttlMs: number): number {
  return Math.min(3_000, ttlMs * 0.25);
}
