import { backoff } from './backoff.js';
import type { Clock, Timer } from './clock.js';
import { Deadlines } from './deadlines.js';
import type { Engine, Guard, LineRef, Session } from './engine.js';
import { asHoldfastError, ClosedError, EngineError, type HoldfastError, isSilence, silence } from './errors.js';
import type { Look } from './explanation.js';
import { GuardedSession } from './guarded-session.js';
import { deadlineMs, KeptSession } from './kept-session.js';
import { LocalLine } from './local-line.js';
import { outside } from './outside.js';
import { ServerGuard } from './server-guard.js';
import type { Standing } from './standing.js';

export interface RealmOptions {
  readonly clock: Clock;
  readonly name: string;
  readonly ttlMs: number;
  readonly label: string;
  /** What and where the engine is, for people, if it says so. */
  readonly title: string | undefined;
  /** Whether the engine can list its lines. */
  readonly listing: boolean;
  connect(): Promise<Engine>;
  /** Who stands in a line; undefined where that can't be told. */
  look(line: LineRef): Promise<Look | undefined>;
  /** Somebody waits, or would, only because the server grants nothing for a while. */
  metGuard(words: string): void;
}

export interface RealmStats {
  readonly held: number;
  readonly waiting: number;
  /** Undefined: there is no session. */
  readonly lastBeatAgoMs: number | undefined;
  readonly guardEndsInMs: number | undefined;
}

/**
 * Keeps one session alive in one realm, and opens a new one on the next demand after a loss. Liveness belongs to the
 * session, not to the lock: one beat renews everything we hold or wait for.
 */
export class Realm {
  readonly options: RealmOptions;
  /** Those in which somebody of ours holds or waits. */
  readonly lines = new Map<string, LocalLine>();
  /** Of one try: it does not wait for longer than the engine may take for one answer. */
  readonly tries: Deadlines;
  readonly guard: ServerGuard;
  readonly #deadlines: Deadlines;
  #session: KeptSession | undefined;
  #opening: KeptSession | undefined;
  #openingCall: { answered(): boolean } | undefined;
  /** Sessions in a row that could not be opened, or died before they had beaten once. */
  #attempts = 0;
  /** Runs while we wait before the next attempt. */
  #pause: Timer | undefined;
  /** Those who want to know whether the engine answers. */
  readonly #probes = new Set<(error?: HoldfastError) => void>();
  /** What was wrong when it was asked last. */
  #trouble: HoldfastError | undefined;
  /** Claims that wait for a session. */
  readonly #unopened = new Set<Standing>();
  pending = 0;
  /** How often the engine has answered to an enter, also to one that nobody waits for any more. */
  answers = 0;
  #closed = false;

  constructor(options: RealmOptions) {
    this.options = options;
    this.guard = new ServerGuard(options.clock, options.title ?? 'the engine');
    this.tries = new Deadlines(options.clock, deadlineMs(options.ttlMs));
    this.#deadlines = new Deadlines(options.clock, deadlineMs(options.ttlMs));
  }

  get busy(): boolean {
    return this.pending > 0;
  }

  /** Whether there is a session, and its last beat was answered. */
  get reached(): boolean {
    return this.#session?.validity.missed === 0;
  }

  get session(): KeptSession | undefined {
    return this.#session?.notice() ? this.#session : undefined;
  }

  line(ref: LineRef, key: string): LocalLine {
    let line = this.lines.get(key);
    if (!line) {
      line = new LocalLine(ref, key, this);
      this.lines.set(key, line);
    }
    return line;
  }

  stand(standing: Standing): void {
    const session = this.session;
    if (this.#closed) {
      standing.fail(new ClosedError());
    } else if (session) {
      standing.begin(session);
    } else {
      this.#unopened.add(standing);
      this.#demand();
    }
  }

  /** Resolves when the engine has answered, with a beat or a new session; rejects when it has not in this time. */
  ready(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (error?: HoldfastError): void => {
        timer.close();
        this.#probes.delete(settle);
        if (error) reject(error);
        else resolve();
      };
      const timer = this.options.clock.timer(timeoutMs, () => settle(this.#trouble ?? silence('ready')));
      this.#probes.add(settle);
      this.#probe();
    });
  }

  #probe(): void {
    if (this.#probes.size === 0) return;
    const { session } = this;
    if (session) session.afterNextBeat(() => this.#settleProbes());
    else this.#demand();
  }

  #settleProbes(error?: HoldfastError): void {
    for (const settle of [...this.#probes]) settle(error);
  }

  /** What it keeps for its users, and how well. */
  stats(): RealmStats {
    const { session } = this;
    let held = 0;
    for (const line of this.lines.values()) held += line.held;
    return { held, waiting: this.pending, lastBeatAgoMs: session?.provenAgoMs, guardEndsInMs: this.guard.endsInMs };
  }

  /** What only we know of a claim of ours: how many wait behind it, and the token of the turn that has it. */
  localView(claimId: string): { local: number; token: bigint | undefined } | undefined {
    return this.#session?.events(claimId)?.view();
  }

  /** Pending acquires keep the process alive; held locks do not. */
  addPending(by: 1 | -1): void {
    this.pending += by;
    if (this.pending === (by === 1 ? 1 : 0)) this.#session?.busyChanged();
  }

  /** The instance ends: whatever is not the work of its functions is told so and given back. */
  drain(owner: object): void {
    for (const line of [...this.lines.values()]) line.drain(new ClosedError(), owner);
  }

  async close(): Promise<void> {
    const error = new ClosedError();
    this.#closed = true;
    this.#pause?.close();
    this.guard.close();
    // Whatever comes of it, nobody awaits it any more.
    this.#openingCall?.answered();
    for (const line of [...this.lines.values()]) line.close(error);
    for (const standing of [...this.#unopened]) standing.fail(error);
    this.#settleProbes(error);
    await this.#session?.close();
  }

  // --- what sessions tell us ------------------------------------------------------------------------------------

  answered(): void {
    this.answers += 1;
  }

  guarded(guard: Guard): void {
    if (!this.#closed) this.guard.told(guard);
  }

  /** Somebody waits, or would, for nothing but the guard. */
  metGuard(): void {
    this.options.metGuard(this.guard.words);
  }

  ended(session: KeptSession): void {
    if (this.#session === session) this.#session = undefined;
    if (session.proven) this.#attempts = 0;
    else this.#attempts += 1;
    this.#probe();
  }

  missed(error: HoldfastError): void {
    if (!this.#trouble || !isSilence(error)) this.#trouble = error;
  }

  // --- opening --------------------------------------------------------------------------------------------------

  /** At once, also after a first failure; if sessions go on failing, after a pause that grows. */
  #demand(): void {
    if (this.#opening || this.#pause || this.#closed) return;
    if (this.#attempts < 2) return outside(() => this.#open());
    const { clock, ttlMs } = this.options;
    this.#pause = clock.timer(backoff(clock, this.#attempts - 2, ttlMs / 100, ttlMs / 6), () => {
      this.#pause = undefined;
      if (this.#wanted()) outside(() => this.#open());
    });
  }

  #open(): void {
    if (this.#closed) return;
    const { clock } = this.options;
    const session = new KeptSession(clock, this);
    this.#opening = session;
    const call = this.#deadlines.start(() => this.#failedToOpen(silence('open')), true);
    this.#openingCall = call;
    let sentAt = 0;
    let sentAtWall = 0;
    const opened = this.options.connect().then((engine) => {
      if (this.#closed) throw new ClosedError();
      sentAt = clock.now();
      sentAtWall = clock.wall();
      const { name, ttlMs, label } = this.options;
      return engine.open({ id: session.id, realm: name, ttlMs, label }, session);
    });
    opened.then(
      (engineSession) => {
        // A session that we gave up must not live on in the engine, and is never ours again.
        if (!call.answered() || this.#closed) return closeQuietly(engineSession);
        session.start(engineSession, sentAt, sentAtWall);
        if (session.notice()) return this.#opened(session);
        closeQuietly(engineSession);
        this.#failedToOpen(silence('open'));
      },
      (error: unknown) => {
        if (call.answered()) this.#failedToOpen(asHoldfastError(error, 'open'));
      },
    );
  }

  #opened(session: KeptSession): void {
    this.#opening = undefined;
    this.#session = session;
    session.busyChanged();
    const standings = [...this.#unopened];
    this.#unopened.clear();
    this.#trouble = undefined;
    this.#settleProbes();
    for (const standing of standings) standing.begin(session);
  }

  #failedToOpen(error: HoldfastError): void {
    this.#opening = undefined;
    this.missed(error);
    const hopeless = !(error instanceof EngineError && error.retryable);
    for (const standing of [...this.#unopened]) {
      if (hopeless) standing.fail(error);
      // It may only have kept silent this time, and have said before why it can't be reached.
      else standing.failing(this.#trouble!);
    }
    if (hopeless) this.#settleProbes(error);
    // Who asks anew after everybody has given up is not to pay for those before.
    this.#attempts = this.#wanted() ? this.#attempts + 1 : 0;
    if (this.#attempts > 0) this.#demand();
  }

  /** Whether anybody still needs a session. */
  #wanted(): boolean {
    for (const standing of this.#unopened) if (standing.over) this.#unopened.delete(standing);
    return this.#unopened.size > 0 || this.#probes.size > 0;
  }
}

function closeQuietly(session: Session): void {
  new GuardedSession(session).close().catch(() => {
    // It dies by itself after its ttl.
  });
}
