/**
 * What we need of PostgreSQL's client, `pg`: statements with a deadline, and connections that are destroyed when they do
 * not answer. `pg` itself waits for ever on a hung server, and an answer that was given up would be taken for that of the
 * next statement's.
 */
import { createHash } from 'node:crypto';
import { ConfigError, EngineError, type HoldfastError } from '../../../core/errors.js';
import { clearInterval, clearTimeout, setInterval, setTimeout } from '../../../core/real-time.js';
import { explain, isConflict, isForgotten, isMissing, isReadOnly, isRefusal } from './errors.js';

/** All values as the server writes them: what parsers the user has set for the types is no matter of ours. */
export type Row = readonly (string | null)[];

/** A statement on one connection. */
export type Run = (text: string, values?: readonly unknown[]) => Promise<readonly Row[]>;

export interface PgClient {
  connect(): Promise<unknown>;
  query(statement: object): Promise<{ readonly rows: readonly Row[] }>;
  release(destroy?: boolean): void;
  end(): Promise<void>;
  ref(): void;
  unref(): void;
  /** Of the backend, as it said itself when we connected. */
  readonly processID: number;
  on(event: 'notification', run: (message: { readonly channel: string; readonly payload?: string }) => void): void;
  on(event: 'error' | 'end', run: (error?: unknown) => void): void;
  removeListener(event: 'error', run: () => void): void;
}

export interface PgPool {
  connect(done: (error: unknown, client: PgClient | undefined) => void): void;
  end(): Promise<void>;
  readonly options: { readonly max?: number; readonly password?: unknown };
  readonly Client: new (options: object) => PgClient;
  readonly totalCount: number;
  readonly idleCount: number;
}

/** Before anybody has opened a session with a ttl. */
const LIMIT_MS = 5_000;
/** A transaction that lost against another is tried again; ours lock in one order, so it was a stranger's. */
const TRIES = 5;

const RAW = { getTypeParser: () => String };

/** In one message: a server that ends idle transactions may do so before it has heard the second. */
export const BEGIN = 'BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0';

export class Database {
  readonly pool: PgPool;
  readonly #owned: boolean;
  /** Connections of the pool that are at work for us. */
  #active = 0;
  /** How long to wait for a connection. Below the core's own deadline, so that it is this that fails: it knows why. */
  limitMs = LIMIT_MS;
  /**
   * Whether statements are prepared once for each connection, which halves what a call costs. Not through a pooler that
   * shares connections between transactions: they would be prepared on somebody else's.
   */
  prepares = false;
  /** Makes the tables anew where there are none: behind the same address there may be another server than before. */
  remake: (() => Promise<unknown>) | undefined;
  /** Called when the server of one of the pool's connections takes no writes any more. */
  turnedReadOnly: () => void = ignore;
  #remaking: Promise<void> | undefined;

  constructor(pool: PgPool, owned: boolean) {
    this.pool = pool;
    this.#owned = owned;
  }

  /**
   * How long to wait for an answer before the connection is destroyed. Above the core's own deadline: an answer that is
   * late is still of use, and a server that is busy is not helped by new connections.
   */
  get patienceMs(): number {
    return 2 * this.limitMs;
  }

  /** For sessions of this ttl, or of a longer one: the shortest counts. */
  serve(ttlMs: number): void {
    this.limitMs = Math.min(this.limitMs, ttlMs / 4);
  }

  /** One statement, in a transaction of its own. */
  query(text: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
    return this.read(text, values, (rows) => rows);
  }

  /**
   * The same for what depends on how a connection is set.
   *
   * @param reader of the answer. Where it throws a ConfigError the connection is destroyed and another one asked: settings that have
   *   been changed since, and put right since, are those of the connections that were made meanwhile.
   */
  async read<T>(text: string, values: readonly unknown[], reader: (rows: readonly Row[]) => T): Promise<T> {
    let remade = false;
    for (let tried = 1; ; tried += 1) {
      try {
        const { patienceMs, prepares } = this;
        const question = { text, values, limitMs: patienceMs, prepares };
        return await this.#once(async (client) => reader(await ask(client, question)));
      } catch (error) {
        // Somebody has made the connection forget all that was prepared on it.
        if (isForgotten(error)) this.prepares = false;
        else if (!remade && (await this.remade(error))) remade = true;
        // One that meets a server without writes is destroyed, and the next one may lead to its successor.
        else if (tried === TRIES || !(isConflict(error) || isReadOnly(error) || error instanceof ConfigError))
          throw explain(error);
      }
    }
  }

  /** Whether tables were missing, and may be there now. */
  async remade(refusal: unknown): Promise<boolean> {
    const { remake } = this;
    if (!isMissing(refusal) || !remake) return false;
    this.#remaking ??= again(remake).finally(() => (this.#remaking = undefined));
    await this.#remaking;
    return true;
  }

  /** Several statements on one connection. */
  async pinned<T>(work: (run: Run) => Promise<T>): Promise<T> {
    return this.#once((client) => work(runOn(client))).catch((error: unknown) => {
      throw explain(error);
    });
  }

  /** On two connections of the pool, asked for together. Fails if it does not give both in time. */
  async both<T>(work: (one: Run, other: Run) => Promise<T>): Promise<T> {
    const seats: Run[] = [];
    let over = false;
    let settle!: { resolve: (value: T) => void; reject: (error: unknown) => void };
    const done = new Promise<T>((resolve, reject) => (settle = { resolve, reject }));
    const sit = async (run: Run): Promise<void> => {
      if (over) return;
      if (seats.push(run) === 2) work(seats[0]!, seats[1]!).then(settle.resolve, settle.reject);
      // What fails costs both connections: a transaction may be left on them.
      await done;
    };
    for (let seat = 0; seat < 2; seat += 1) this.pinned(sit).catch(settle.reject);
    const timer = setTimeout(() => {
      if (seats.length < 2) settle.reject(this.#noConnection());
    }, this.limitMs);
    try {
      return await done;
    } finally {
      over = true;
      clearTimeout(timer);
    }
  }

  /** On a connection beside the pool, which is ended after it. */
  async beside<T>(work: (run: Run) => Promise<T>): Promise<T> {
    const client = this.aside();
    client.on('error', ignore);
    try {
      await within(this.limitMs, client.connect());
      return await work(runOn(client));
    } catch (error) {
      throw explain(error);
    } finally {
      void farewell(client, this.limitMs);
    }
  }

  /** A connection beside the pool, not opened yet: it neither takes the pool's room nor waits for it. */
  aside(): PgClient {
    const { Client, options } = this.pool;
    // The pool hides its password from whoever copies or prints its options.
    return new Client({ ...options, password: options.password, keepAlive: true });
  }

  async close(): Promise<void> {
    if (this.#owned) await within(this.limitMs, this.pool.end()).catch(ignore);
  }

  async #once<T>(work: (client: PgClient) => Promise<T>): Promise<T> {
    const client = await this.#checkout();
    this.#active += 1;
    let broken = false;
    try {
      return await work(client);
    } catch (error) {
      // After a refusal the connection is as good as before; after anything else nobody knows what is on its way.
      broken = !isRefusal(error);
      if (isReadOnly(error)) this.turnedReadOnly();
      throw error;
    } finally {
      // One that is broken may still have to say so.
      if (!broken) client.removeListener('error', ignore);
      this.#active -= 1;
      client.release(broken);
    }
  }

  #checkout(): Promise<PgClient> {
    if (this.pool.idleCount > 0) return this.#connect();
    return new Promise((resolve, reject) => {
      let over = false;
      const timer = setInterval(() => {
        // We only wait for ourselves: that ends, or the core loses its patience.
        if (this.#active > 0) return;
        over = true;
        clearInterval(timer);
        reject(this.#noConnection());
      }, this.limitMs);
      this.#connect().then(
        (client) => {
          clearInterval(timer);
          if (!over) return resolve(client);
          client.removeListener('error', ignore);
          return client.release();
        },
        (error: unknown) => {
          clearInterval(timer);
          if (!over) reject(error);
        },
      );
    });
  }

  /**
   * The pool looks after its connections only while they are idle: one that breaks while it is ours would end the process.
   * We listen in its callback, not after a promise: what the server says in the same packet as its welcome comes before that.
   */
  #connect(): Promise<PgClient> {
    return new Promise((resolve, reject) => {
      this.pool.connect((error, client) => {
        if (!client) return reject(error);
        client.on('error', ignore);
        return resolve(client);
      });
    });
  }

  #noConnection(): HoldfastError {
    const { totalCount, idleCount, options } = this.pool;
    if (totalCount < (options.max ?? 10) || idleCount > 0)
      return new EngineError(`PostgreSQL did not accept a connection within ${this.limitMs} ms.`);
    return new EngineError(
      `All ${totalCount} connections of the pool were in use for ${this.limitMs} ms. Give it more of them (max), or give Holdfast a pool of its own.`,
    );
  }
}

/** Once more on another connection, while those that we get lead to a server without writes. */
async function again(work: () => Promise<unknown>): Promise<void> {
  for (let tried = 1; ; tried += 1) {
    try {
      await work();
      return;
    } catch (error) {
      if (tried === TRIES || !isReadOnly(error)) throw error;
    }
  }
}

/** Says good-bye. A server that hangs never answers that, and is not waited for. */
export async function farewell(client: PgClient, limitMs: number): Promise<void> {
  // Else nothing may be left that keeps the process alive until it is done.
  client.ref();
  await within(limitMs, client.end()).catch(ignore);
}

/** `pg` has no deadline of its own for connecting and for ending. */
export function within<T>(limitMs: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new EngineError(`PostgreSQL did not answer within ${limitMs} ms.`)), limitMs);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function runOn(client: PgClient): Run {
  return (text, values) => ask(client, { text, values, limitMs: LIMIT_MS });
}

/** What is wrong with a connection is told by the statement that fails. */
function ignore(): void {}

export interface Question {
  readonly text: string;
  readonly values?: readonly unknown[] | undefined;
  readonly limitMs: number;
  readonly prepares?: boolean;
}

export function ask(client: PgClient, { text, values, limitMs, prepares }: Question): Promise<readonly Row[]> {
  const name = prepares ? nameOf(text) : undefined;
  const statement = { name, text, values, rowMode: 'array', types: RAW, query_timeout: limitMs };
  return client.query(statement).then(({ rows }) => rows);
}

const preparedNames = new Map<string, string>();

/** The pool may be the user's, and have statements of its own: a name has to stand for one text only. */
function nameOf(text: string): string {
  const known = preparedNames.get(text);
  if (known !== undefined) return known;
  const name = `holdfast_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
  preparedNames.set(text, name);
  return name;
}
