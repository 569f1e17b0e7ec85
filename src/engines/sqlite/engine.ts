/**
 * SQLite can't push, so whoever grants a claim rings the bell of its session (doorbell.ts). That is a hint which may be lost, so an
 * instance with waiting claims also looks from time to time at `data_version`; only when another connection has committed does it
 * ask for its grants. Whoever is next looks most often, and the others the less often the more are before them.
 */
import type { Clock, Timer } from '../../core/clock.js';
import type {
  Engine,
  EngineLine,
  EngineSetup,
  LineQuery,
  OpenOptions,
  Session,
  SessionListener,
} from '../../core/engine.js';
import type { Database, Statement } from './client/driver.js';
import { ring } from './doorbell.js';
import { isFull } from './errors.js';
import { patiently } from './patience.js';
import { Ledger } from './protocol.js';
import { RegisterWriter, SqliteRegisters } from './registers.js';
import { rollBack } from './schema.js';
import { type LockFile, SqliteSession } from './session.js';

/** How often the waiting look whether a process in their way has died. */
const REAP_MS = 100;
/** Commits between two checkpoints: about four megabytes of write-ahead log. */
const CHECKPOINT_COMMITS = 250;

export class SqliteEngine implements Engine, LockFile {
  readonly registers: SqliteRegisters;
  readonly #path: string;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #ledger: Ledger;
  readonly #writer: RegisterWriter;
  readonly #begin: Statement;
  readonly #beginRead: Statement;
  readonly #commit: Statement;
  readonly #dataVersion: Statement;
  readonly #sessions = new Set<SqliteSession>();
  #commits = 0;
  #seenVersion: unknown;
  #reapAt = 0;
  #poll: Timer | undefined;
  #pollDue = 0;

  constructor(path: string, database: Database, { namespace, clock }: EngineSetup) {
    this.#path = path;
    this.#database = database;
    this.#clock = clock;
    this.#ledger = new Ledger(database, namespace);
    this.#writer = new RegisterWriter(path);
    this.registers = new SqliteRegisters(path, database, namespace, this.#writer);
    this.#begin = database.prepare('BEGIN IMMEDIATE');
    this.#beginRead = database.prepare('BEGIN');
    this.#commit = database.prepare('COMMIT');
    this.#dataVersion = database.prepare('PRAGMA data_version');
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    await this.transact((ledger) => ledger.open(options));
    const session = new SqliteSession(this, options, listener);
    this.#sessions.add(session);
    return session;
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    // Where nobody can write, things are shown as they stand.
    if (this.hasNews()) await this.transact((ledger) => ledger.reap()).catch(() => {});
    yield* await patiently(this.#path, () =>
      this.#inTransaction((ledger) => [...ledger.inspect(query)], this.#beginRead),
    );
  }

  evict(name: string, claimId: string, reason: string): Promise<boolean> {
    return this.transact((ledger) => ledger.evict(name, claimId, reason));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#poll?.close();
    for (const session of this.#sessions) session.deafen();
    this.#database.close();
    // The thread goes last: whoever goes last empties the log into the file, which may wait for the disk.
    await this.#writer.close();
  }

  forget(session: SqliteSession): void {
    this.#sessions.delete(session);
  }

  async transact<T>(work: (ledger: Ledger) => T): Promise<T> {
    let full = false;
    const attempt = (): T => {
      try {
        return this.#perform(work);
      } catch (error) {
        full = isFull(error);
        throw error;
      }
    };
    try {
      return await patiently(this.#path, attempt);
    } catch (error) {
      if (!full || !(await this.#makeRoom())) throw error;
      return patiently(this.#path, attempt);
    }
  }

  /** On a full disk the log can't grow. What a checkpoint has moved into the file may be overwritten in it. */
  #makeRoom(): Promise<boolean> {
    return this.#writer.do({ kind: 'checkpoint' }).then(
      () => true,
      () => false,
    );
  }

  #perform<T>(work: (ledger: Ledger) => T): T {
    const value = this.#inTransaction(work);
    this.#committed();
    for (const session of this.#ledger.takeTold()) if (!this.#isOurs(session)) ring(session);
    return value;
  }

  #inTransaction<T>(work: (ledger: Ledger) => T, begin = this.#begin): T {
    begin.run();
    try {
      const value = work(this.#ledger);
      this.#commit.run();
      return value;
    } catch (error) {
      rollBack(this.#database);
      this.#ledger.takeTold();
      throw error;
    }
  }

  #committed(): void {
    this.#tellOurs();
    this.#commits += 1;
    if (this.#commits % CHECKPOINT_COMMITS !== 0) return;
    this.#writer.do({ kind: 'checkpoint' }).catch(() => {
      // The log grows until the next one.
    });
  }

  /**
   * data_version counts the commits of others only: what ours granted to ourselves has no other sign. What has been committed
   * must not be done again because of a look that failed, so that one is left to the next.
   */
  #tellOurs(): void {
    try {
      for (const session of this.#sessions) if (session.waits) session.tell(this.#ledger);
    } catch {
      this.#seenVersion = undefined;
    }
  }

  hasNews(): boolean {
    try {
      return this.#ledger.hasNews();
    } catch {
      // What is wrong with the file shows in the call itself.
      return true;
    }
  }

  watch(): void {
    const waiting = [...this.#sessions].filter((session) => session.waits);
    if (waiting.length === 0) return;
    const pauseMs = Math.min(...waiting.map((session) => session.pauseMs));
    const due = this.#clock.now() + pauseMs;
    if (this.#poll && this.#pollDue <= due) return;
    this.#poll?.close();
    this.#pollDue = due;
    this.#poll = this.#clock.timer(pauseMs, () => void this.look());
    this.#poll.unref();
  }

  async look(): Promise<void> {
    this.#poll?.close();
    this.#poll = undefined;
    try {
      const version = Object.values(this.#dataVersion.get() ?? {})[0];
      const changed = version !== this.#seenVersion;
      if (this.#clock.now() >= this.#reapAt) {
        this.#reapAt = this.#clock.now() + REAP_MS;
        if (this.#isHelped()) await this.transact((ledger) => ledger.reap());
      }
      for (const session of this.#sessions) if (changed) session.tell(this.#ledger);
      // Only now: what could not be told this time must show as changed the next time, too.
      this.#seenVersion = version;
    } catch {
      // A look that failed is made again; what is really wrong shows in the calls.
    }
    this.watch();
  }

  /** Then it has been told without a ring. */
  #isOurs(id: string): boolean {
    return [...this.#sessions].some((session) => session.id === id);
  }

  /** Whether somebody has died who is in the way of ours. */
  #isHelped(): boolean {
    return [...this.#sessions].some((session) => session.waits && this.#ledger.hasNewsFor(session.id));
  }
}
