/**
 * The `queue` strategy: rows for sessions, lines and claims; the protocol is in protocol.ts.
 *
 *     enter ─▶ function ─▶ held              one round trip
 *              function ─▶ waiting ┄┄ leave of another: function ─▶ NOTIFY to our channel, with token and nonce ─▶ held
 *
 * A message is a hint, and a grant is believed if it has the nonce of its claim: see kit/message.ts. Who missed one finds its grant
 * when the listener hears again, or with the next beat.
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
import { DeathWatch } from '../../kit/death-watch.js';
import type { Database } from './client/database.js';
import { isMissing, isReadOnly } from './client/errors.js';
import { proveTransactionLocks } from './exclusion.js';
import { listLines } from './listing.js';
import { Listener } from './client/listener.js';
import type { Names } from '../../sql/postgres-names.js';
import { PostgresRegisters } from './registers.js';
import { type QueueServices, QueueSession } from './session.js';
import { answerOf, guarded } from './settings.js';

/** While messages do not come through. */
const POLL_MS = 100;
/** How many beats there are between two cleanings. */
const CLEAN_EVERY = 10;
/** The answer of `sweep` when it did not get through with what is due. */
const MORE = -2;

export class QueueEngine implements Engine, QueueServices {
  readonly registers: PostgresRegisters;
  readonly namespace: string;
  readonly #database: Database;
  readonly #names: Names;
  readonly #clock: Clock;
  /** Another id than any session's: everybody can see who listens to what. */
  readonly #inbox: string;
  readonly #listener: Listener;
  readonly #sessions = new Set<QueueSession>();
  readonly #deaths: DeathWatch;
  #polling: Timer | undefined;
  #beats = 0;
  #closed = false;

  constructor(database: Database, names: Names, { namespace, clock }: EngineSetup) {
    this.namespace = namespace;
    this.#database = database;
    this.#names = names;
    this.#clock = clock;
    this.registers = new PostgresRegisters(database, names, namespace);
    this.#inbox = `holdfast_${clock.id()}`;
    this.#deaths = new DeathWatch({
      clock,
      waits: () => this.#anybodyWaits,
      look: () => this.#quietly(this.#sweep()),
    });
    this.#listener = new Listener({
      database,
      clock,
      channel: this.#inbox,
      message: (text) => this.#sessions.forEach((session) => session.message(text)),
      resumed: () => this.#lookAll(),
    });
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    this.#database.serve(options.ttlMs);
    await proveTransactionLocks(this.#database);
    this.#listener.start();
    const session = new QueueSession(this, options, listener, this.#clock);
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
    this.#closed = true;
    this.#deaths.close();
    this.#polling?.close();
    await this.#listener.close();
    await this.#database.close();
  }

  // --- for sessions ---------------------------------------------------------------------------------------------

  async call(routine: string, ...args: readonly unknown[]): Promise<string | null> {
    return this.#database.read(this.#text(routine, args.length), args, answerOf);
  }

  async callAside(routine: string, ...args: readonly unknown[]): Promise<string | null> {
    const asked = this.#listener.tryQuery(this.#text(routine, args.length), args);
    if (!asked) {
      this.#listener.prove();
      return this.call(routine, ...args);
    }
    try {
      return answerOf(await asked);
    } catch (error) {
      // There may be a successor, or tables to be made: the pool finds out.
      if (isReadOnly(error) || isMissing(error)) return this.call(routine, ...args);
      throw error;
    }
  }

  waits(lookMs: number): void {
    this.#deaths.expect(lookMs);
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

  #lookAll(): void {
    for (const session of this.#sessions) this.#quietly(session.look());
  }

  #poll(): void {
    if (this.#polling || this.#listener.hears || this.#closed) return;
    this.#polling = this.#clock.timer(POLL_MS * (0.5 + this.#clock.random()), () => {
      this.#polling = undefined;
      this.#lookAll();
      if (this.#anybodyWaits) this.#poll();
    });
    this.#polling.unref();
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
    return guarded(`${this.#names.of(routine)}(${args})`);
  }
}
