/**
 * The `queue` strategy: rows for sessions, lines and claims; the protocol is in protocol.ts.
 *
 *     enter ─▶ function ─▶ held              one round trip
 *              function ─▶ waiting ┄┄ leave of another: function ─▶ NOTIFY to our channel, with the token ─▶ held
 *
 * A message is a hint: who missed one finds its grant when the listener hears again, or with the next beat.
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
import { ConfigError } from '../../core/errors.js';
import type { Database } from './client/database.js';
import { listLines } from './listing.js';
import { Listener } from './client/listener.js';
import type { Names } from '../../sql/postgres-names.js';
import { PostgresRegisters } from './registers.js';
import { type Queue, QueueSession } from './session.js';

/** While messages do not come through. */
const POLL_MS = 100;
/** All who wait look when a session should have died; the first of them does the work, so they come one after the other. */
const STAGGER_MS = 50;
/** How many beats there are between two cleanings. */
const CLEAN_EVERY = 10;
/** The answer of `sweep` when it did not get through with what is due. */
const MORE = -2;

export class QueueEngine implements Engine, Queue {
  readonly registers: PostgresRegisters;
  readonly namespace: string;
  readonly #database: Database;
  readonly #names: Names;
  readonly #clock: Clock;
  /** Another id than any session's: everybody can see who listens to what. */
  readonly #inbox: string;
  readonly #listener: Listener;
  readonly #sessions = new Set<QueueSession>();
  #looking: Timer | undefined;
  #lookAt = Number.POSITIVE_INFINITY;
  #polling: Timer | undefined;
  #beats = 0;

  constructor(database: Database, names: Names, { namespace, clock }: EngineSetup) {
    this.namespace = namespace;
    this.#database = database;
    this.#names = names;
    this.#clock = clock;
    this.registers = new PostgresRegisters(database, names, namespace);
    this.#inbox = `holdfast_${clock.id()}`;
    this.#listener = new Listener({
      database,
      clock,
      channel: this.#inbox,
      message: (text) => this.#message(text),
      resumed: () => this.#lookAll(),
    });
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    this.#database.serve(options.ttlMs);
    const session = new QueueSession(this, options, listener);
    await session.open(this.#inbox);
    this.#sessions.add(session);
    return session;
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    await this.#sweep();
    yield* listLines(this.#database, this.#names, this.namespace, query);
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    // As JSON, because text of PostgreSQL can't have every character.
    return (await this.call('evict', this.namespace, name, claimId, JSON.stringify(reason))) === 't';
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#looking?.close();
    this.#lookAt = Number.NEGATIVE_INFINITY;
    this.#polling?.close();
    await this.#listener.close();
    await this.#database.close();
  }

  // --- for sessions ---------------------------------------------------------------------------------------------

  async call(routine: string, ...args: readonly unknown[]): Promise<string | null> {
    const [row] = await this.#database.query(this.#text(routine, args.length), args);
    return row![0]!;
  }

  async callAside(routine: string, ...args: readonly unknown[]): Promise<string | null> {
    if (!this.#listener.isFree) {
      this.#listener.prove();
      return this.call(routine, ...args);
    }
    const [row] = await this.#listener.query(this.#text(routine, args.length), args);
    return row![0]!;
  }

  waits(lookMs: number): void {
    if (lookMs >= 0) this.#lookIn(lookMs);
    this.#poll();
  }

  beaten(someoneDied: boolean): void {
    this.#beats += 1;
    if (someoneDied) this.#quietly(this.#sweep());
    if (this.#beats % CLEAN_EVERY === 0) this.#quietly(this.#clean());
  }

  forget(session: QueueSession): void {
    this.#sessions.delete(session);
  }

  // --- what nobody asked for ------------------------------------------------------------------------------------

  get #anybodyWaits(): boolean {
    return [...this.#sessions].some((session) => session.hasWaiting);
  }

  #message(text: string): void {
    const [, what, id, rest] = /^(\S+) (\S+) (.*)$/s.exec(text) ?? [];
    if (what === undefined || id === undefined || rest === undefined) return;
    for (const session of this.#sessions) session.message(what, id, rest);
  }

  #lookAll(): void {
    for (const session of this.#sessions) this.#quietly(session.look());
  }

  #poll(): void {
    if (this.#polling || this.#listener.hears || this.#lookAt === Number.NEGATIVE_INFINITY) return;
    this.#polling = this.#clock.timer(POLL_MS * (0.5 + this.#clock.random()), () => {
      this.#polling = undefined;
      this.#lookAll();
      if (this.#anybodyWaits) this.#poll();
    });
    this.#polling.unref();
  }

  /** The dead send nothing: those who wait for them look by themselves. */
  #lookIn(ms: number): void {
    const delayMs = ms + 1 + this.#clock.random() * STAGGER_MS;
    const at = this.#clock.now() + delayMs;
    if (this.#lookAt <= at) return;
    this.#looking?.close();
    this.#lookAt = at;
    this.#looking = this.#clock.timer(delayMs, () => {
      this.#lookAt = Number.POSITIVE_INFINITY;
      if (this.#anybodyWaits) this.#quietly(this.#sweep());
    });
    this.#looking.unref();
  }

  async #sweep(): Promise<void> {
    let lookMs = MORE;
    while (lookMs === MORE) lookMs = Number(await this.call('sweep', this.namespace, ''));
    if (this.#anybodyWaits) this.waits(lookMs);
  }

  async #clean(): Promise<void> {
    while ((await this.call('clean', this.namespace)) === 't');
    await this.registers.forget();
  }

  #quietly(work: Promise<unknown>): void {
    work.catch(() => {
      // It was for others, or will be done again: the next beat brings the next occasion.
      if (this.#anybodyWaits) this.waits(POLL_MS);
    });
  }

  #text(routine: string, count: number): string {
    const args = Array.from({ length: count }, (_, at) => `$${at + 1}`).join(', ');
    return `SELECT ${this.#names.of(routine)}(${args})`;
  }
}

/** What the protocol relies on. */
export async function checkSettings(database: Database): Promise<void> {
  const [row] = await database.query(
    `SELECT current_setting('transaction_isolation'), current_setting('server_encoding'), current_setting('server_version_num')`,
  );
  const [isolation, encoding, version] = row!;
  if (isolation !== 'read committed')
    throw new ConfigError(
      `postgres: the connections use the isolation level "${isolation}". Give Holdfast a pool with "read committed".`,
    );
  if (encoding !== 'UTF8')
    throw new ConfigError(`postgres: the database has the encoding ${encoding}; names need UTF8.`);
  if (Number(version) < 120_000) throw new ConfigError('postgres: PostgreSQL 12 or newer is needed.');
}
