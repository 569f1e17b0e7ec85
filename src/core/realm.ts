import { backoff } from './backoff.js';
import type { Clock, Timer } from './clock.js';
import { Deadlines } from './deadlines.js';
import type { Engine, LineRef, Session } from './engine.js';
import { asHoldfastError, ClosedError, EngineError, type HoldfastError, silence } from './errors.js';
import type { Look } from './explanation.js';
import { GuardedSession } from './guarded-session.js';
import { deadlineMs, KeptSession } from './kept-session.js';
import { LocalLine } from './local-line.js';
import { outside } from './outside.js';
import { type ClaimRequest, Standing, type StandingEvents } from './standing.js';

export interface RealmOptions {
  readonly clock: Clock;
  readonly name: string;
  readonly ttlMs: number;
  readonly label: string;
  connect(): Promise<Engine>;
  /** Who stands in a line; undefined where that can't be told. */
  look(line: LineRef): Promise<Look | undefined>;
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
  readonly #deadlines: Deadlines;
  #session: KeptSession | undefined;
  #opening: KeptSession | undefined;
  #openingCall: { answered(): boolean } | undefined;
  /** Sessions in a row that could not be opened, or died before they had beaten once. */
  #attempts = 0;
  /** Runs while we wait before the next attempt. */
  #pause: Timer | undefined;
  #readyWaiters: { resolve: () => void; reject: (error: HoldfastError) => void; since: number }[] = [];
  /** Claims that wait for a session. */
  readonly #unopened = new Set<Standing>();
  pending = 0;
  /** How often the engine has answered to an enter, also to one that nobody waits for any more. */
  answers = 0;
  #closed = false;

  constructor(options: RealmOptions) {
    this.options = options;
    this.tries = new Deadlines(options.clock, deadlineMs(options.ttlMs));
    this.#deadlines = new Deadlines(options.clock, deadlineMs(options.ttlMs));
  }

  get busy(): boolean {
    return this.pending > 0;
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

  stand(request: ClaimRequest, events: StandingEvents): Standing {
    const standing = new Standing(request, events);
    const session = this.session;
    if (this.#closed) {
      standing.fail(new ClosedError());
    } else if (session) {
      standing.begin(session);
    } else {
      this.#unopened.add(standing);
      this.#demand();
    }
    return standing;
  }

  /** Resolves when there is a session; rejects when the engine could not be asked for one ttl. */
  ready(): Promise<void> {
    if (this.session) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#readyWaiters.push({ resolve, reject, since: this.options.clock.now() });
      this.#demand();
    });
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
    // Whatever comes of it, nobody awaits it any more.
    this.#openingCall?.answered();
    for (const line of [...this.lines.values()]) line.close(error);
    for (const standing of [...this.#unopened]) standing.fail(error);
    this.#failReady(error, true);
    await this.#session?.close();
  }

  // --- what sessions tell us ------------------------------------------------------------------------------------

  answered(): void {
    this.answers += 1;
  }

  ended(session: KeptSession): void {
    if (this.#session === session) this.#session = undefined;
    if (session.proven) this.#attempts = 0;
    else this.#attempts += 1;
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
    for (const { resolve } of this.#readyWaiters.splice(0)) resolve();
    for (const standing of standings) standing.begin(session);
  }

  #failedToOpen(error: HoldfastError): void {
    this.#opening = undefined;
    const hopeless = !(error instanceof EngineError && error.retryable);
    for (const standing of [...this.#unopened]) {
      if (hopeless) standing.fail(error);
      else standing.failing(error);
    }
    this.#failReady(error, hopeless);
    // Who asks anew after everybody has given up is not to pay for those before.
    this.#attempts = this.#wanted() ? this.#attempts + 1 : 0;
    if (this.#attempts > 0) this.#demand();
  }

  #failReady(error: HoldfastError, hopeless: boolean): void {
    const patienceEnds = hopeless ? Number.POSITIVE_INFINITY : this.options.clock.now() - this.options.ttlMs;
    for (const waiter of this.#readyWaiters.filter(({ since }) => since <= patienceEnds)) waiter.reject(error);
    this.#readyWaiters = this.#readyWaiters.filter(({ since }) => since > patienceEnds);
  }

  /** Whether anybody still needs a session. */
  #wanted(): boolean {
    for (const standing of this.#unopened) if (standing.over) this.#unopened.delete(standing);
    return this.#unopened.size > 0 || this.#readyWaiters.length > 0;
  }
}

function closeQuietly(session: Session): void {
  new GuardedSession(session).close().catch(() => {
    // It dies by itself after its ttl.
  });
}
