/**
 * SQLite as a lock server for all processes of one machine: the embedded default. The protocol is in protocol.ts, the
 * tables in schema.ts, what may wait for the disk in registers.ts.
 *
 * SQLite can't push, so an instance with waiting claims looks at `data_version` every few milliseconds; only when
 * another connection has committed does it ask for its grants. A busy database is tried again after a short random
 * pause: SQLite's own way of waiting would block the event loop.
 */
import { closeSync, openSync } from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import type { Clock, Timer } from '../../core/clock.js';
import type {
  Claim,
  ClaimRef,
  Engine,
  EngineLine,
  EngineSetup,
  EngineSource,
  LineQuery,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { ConfigError, EngineError, HoldfastError } from '../../core/errors.js';
import { Awaited } from '../../kit/awaited.js';
import { warnOnce } from '../../kit/warn-once.js';
import { type Database, type Driver, loadDriver, type Statement } from './client/driver.js';
import { monotonicMs } from './host.js';
import { Ledger } from './protocol.js';
import { SqliteRegisters, Writer } from './registers.js';
import { openFile } from './schema.js';
import { traits } from './traits.js';

const POLL_MS = 4;
/** How often the waiting look whether a process in their way has died. */
const REAP_MS = 100;
/** A busy database is asked again for this long. */
const PATIENCE_MS = 5_000;
/** Commits between two checkpoints: about four megabytes of write-ahead log. */
const CHECKPOINT_COMMITS = 250;

/** Locks in a file: `new Holdfast(sqlite('./locks.db'))` or `new Holdfast('sqlite:./locks.db')`. */
export function sqlite(path: string): EngineSource {
  if (typeof path !== 'string' || path === '')
    throw new ConfigError("sqlite needs the path of a file: 'sqlite:./locks.db'.");
  const file = resolve(path);
  return { traits, place: `sqlite:${file}`, connect: (setup) => connect(file, setup) };
}

async function connect(path: string, setup: EngineSetup): Promise<Engine> {
  const driver = await loadDriver();
  warnOfOld(driver);
  keepPrivate(path);
  const database = await patiently(path, () => openFile(driver, path));
  return new SqliteEngine(path, database, setup);
}

/** A new file is its owner's alone, and so are the log and the index that SQLite puts beside it: session ids are secrets. */
function keepPrivate(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch {
    // It is there already, or SQLite will say what is wrong.
  }
}

class SqliteEngine implements Engine {
  readonly registers: SqliteRegisters;
  readonly #path: string;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #ledger: Ledger;
  readonly #writer: Writer;
  readonly #begin: Statement;
  readonly #commit: Statement;
  readonly #rollback: Statement;
  readonly #dataVersion: Statement;
  readonly #sessions = new Set<SqliteSession>();
  #commits = 0;
  #seenVersion: unknown;
  #reapAt = 0;
  #poll: Timer | undefined;

  constructor(path: string, database: Database, { namespace, clock }: EngineSetup) {
    this.#path = path;
    this.#database = database;
    this.#clock = clock;
    this.#ledger = new Ledger(database, namespace);
    this.#writer = new Writer(path);
    this.registers = new SqliteRegisters(database, namespace, this.#writer);
    this.#begin = database.prepare('BEGIN IMMEDIATE');
    this.#commit = database.prepare('COMMIT');
    this.#rollback = database.prepare('ROLLBACK');
    this.#dataVersion = database.prepare('PRAGMA data_version');
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    await this.transact((ledger) => ledger.open(options));
    const session = new SqliteSession(this, options, listener, () => this.#sessions.delete(session));
    this.#sessions.add(session);
    return session;
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    yield* await this.transact((ledger) => {
      ledger.reap();
      return [...ledger.inspect(query)];
    });
  }

  evict(name: string, claimId: string, reason: string): Promise<boolean> {
    return this.transact((ledger) => ledger.evict(name, claimId, reason));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#poll?.close();
    this.#database.close();
    // The thread goes last: whoever goes last empties the log into the file, which may wait for the disk.
    await this.#writer.close();
  }

  /** One transaction, tried again while others are at it. */
  transact<T>(work: (ledger: Ledger) => T): Promise<T> {
    return patiently(this.#path, () => this.#perform(work));
  }

  #perform<T>(work: (ledger: Ledger) => T): T {
    const value = this.#inTransaction(work);
    this.#committed();
    return value;
  }

  #inTransaction<T>(work: (ledger: Ledger) => T): T {
    this.#begin.run();
    try {
      const value = work(this.#ledger);
      this.#commit.run();
      return value;
    } catch (error) {
      this.#undo();
      throw error;
    }
  }

  #undo(): void {
    try {
      this.#rollback.run();
    } catch {
      // A full disk has rolled it back already.
    }
  }

  #committed(): void {
    // data_version counts the commits of others only: what ours granted to ourselves has no other sign.
    for (const session of this.#sessions) if (session.waits) session.tell(this.#ledger);
    this.#commits += 1;
    if (this.#commits % CHECKPOINT_COMMITS !== 0) return;
    this.#writer.do({ kind: 'checkpoint' }).catch(() => {
      // The log grows until the next one.
    });
  }

  /** Somebody of ours waits, or nobody any more. */
  watch(): void {
    const waiting = [...this.#sessions].some((session) => session.waits);
    if (!waiting || this.#poll) return;
    this.#poll = this.#clock.timer(POLL_MS, () => void this.#look());
    this.#poll.unref();
  }

  async #look(): Promise<void> {
    this.#poll = undefined;
    try {
      const version = Object.values(this.#dataVersion.get() ?? {})[0];
      const changed = version !== this.#seenVersion;
      if (this.#clock.now() >= this.#reapAt) {
        this.#reapAt = this.#clock.now() + REAP_MS;
        if (this.#ledger.hasDead()) await this.transact((ledger) => ledger.reap());
      }
      for (const session of this.#sessions) if (changed) session.tell(this.#ledger);
      // Only now: what could not be told this time must show as changed the next time, too.
      this.#seenVersion = version;
    } catch {
      // A look that failed is made again; what is really wrong shows in the calls.
    }
    this.watch();
  }
}

class SqliteSession implements Session {
  readonly ttlMs: number;
  readonly #engine: SqliteEngine;
  readonly #id: string;
  readonly #awaited: Awaited;
  readonly #forget: () => void;

  constructor(engine: SqliteEngine, { id, ttlMs }: OpenOptions, listener: SessionListener, forget: () => void) {
    this.#engine = engine;
    this.#id = id;
    this.ttlMs = ttlMs;
    this.#awaited = new Awaited(listener);
    this.#forget = forget;
  }

  get waits(): boolean {
    return this.#awaited.size > 0;
  }

  async enter(claim: Claim): Promise<Place> {
    const place = await this.#engine.transact((ledger) => {
      const entered = ledger.enter(this.#id, claim);
      // At once: before our caller hears that it waits, a leave of our own may have granted it, and that shows to nobody later.
      if (entered.state === 'waiting') this.#awaited.add(claim.id);
      return entered;
    });
    if (place.state === 'waiting') this.#engine.watch();
    return place;
  }

  leave(claim: ClaimRef): Promise<boolean> {
    this.#awaited.delete(claim.id);
    return this.#engine.transact((ledger) => ledger.leave(this.#id, claim));
  }

  reweigh(claim: Claim): Promise<void> {
    return this.#engine.transact((ledger) => ledger.reweigh(this.#id, claim));
  }

  async beat(roster: Roster): Promise<Pulse> {
    const { pulse, evicted } = await this.#engine.transact((ledger) => ledger.beat(this.#id, roster));
    for (const { id, reason } of evicted) this.#awaited.evicted(id, reason);
    return pulse;
  }

  async close(): Promise<void> {
    this.#awaited.clear();
    this.#forget();
    await this.#engine.transact((ledger) => ledger.close(this.#id));
  }

  /** What has happened to ours since the last look. */
  tell(ledger: Ledger): void {
    for (const id of [...this.#awaited]) {
      const { token, evicted } = ledger.look(this.#id, id);
      if (token !== undefined) this.#awaited.granted(id, token);
      if (evicted !== undefined) this.#awaited.evicted(id, evicted);
    }
  }
}

/**
 * Again and again while the file is busy, with short random pauses. These are the file's, as the latency of a network
 * would be: no matter of the injected clock.
 */
async function patiently<T>(path: string, work: () => T): Promise<T> {
  const deadline = monotonicMs() + PATIENCE_MS;
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error)) throw explained(path, error);
      if (monotonicMs() > deadline) throw new EngineError(`The lock file ${path} was busy for ${PATIENCE_MS} ms.`);
    }
    await setTimeout(1 + Math.random() * 7);
  }
}

const BUSY = new Set([5, 6]);

function isBusy(error: unknown): boolean {
  return BUSY.has(Number((error as { errcode?: unknown }).errcode) & 0xff);
}

/** What SQLite says about the file, as an error of ours. The path is no secret; everything else is in the cause. */
function explained(path: string, error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const known = TROUBLE[Number((error as { errcode?: unknown }).errcode) & 0xff];
  if (!known) return new EngineError(`SQLite failed on ${path}.`, { cause: error });
  return new EngineError(known.text(path), { cause: error, retryable: known.retryable });
}

const TROUBLE: Record<number, { text: (path: string) => string; retryable: boolean }> = {
  8: {
    text: (path) => `The lock file ${path} is read-only: Holdfast must be able to write it and its folder.`,
    retryable: false,
  },
  10: { text: (path) => `The lock file ${path} could not be read or written: an I/O error.`, retryable: true },
  11: {
    text: (path) => `The lock file ${path} is damaged. Stop all users of it and delete it: locks are made anew.`,
    retryable: false,
  },
  13: { text: (path) => `There is no space left for the lock file ${path}.`, retryable: true },
  14: {
    text: (path) => `The lock file ${path} can't be opened: its folder must exist and be writable.`,
    retryable: false,
  },
  26: { text: (path) => `${path} is no SQLite file. Holdfast needs a file of its own.`, retryable: false },
};

function warnOfOld({ wal, name }: Driver): void {
  if (wal) return;
  warnOnce(
    `The SQLite of ${name} is too old for a write-ahead log (3.51.3 is needed): locks use a rollback journal, which is slow. ` +
      'Use a newer Node, or run: npm install @photostructure/sqlite',
  );
}
