import { backoff } from './backoff.js';
import type { Clock } from './clock.js';
import { Deadlines } from './deadlines.js';
import type { Engine, Session } from './engine.js';
import { asHoldfastError, ConfigError, EngineError, type HoldfastError } from './errors.js';
import { deadlineMs, KeptSession } from './kept-session.js';
import { type ClaimRequest, Standing, type StandingEvents } from './standing.js';

export interface KeeperOptions {
  readonly clock: Clock;
  readonly realm: string;
  readonly ttlMs: number;
  readonly label: string;
  connect(): Promise<Engine>;
}

/**
 * Keeps one session alive in one realm, and opens a new one on the next demand after a loss. Liveness belongs to the
 * session, not to the lock: one beat renews everything we hold or wait for.
 */
export class Keeper {
  readonly #options: KeeperOptions;
  readonly #deadlines: Deadlines;
  #session: KeptSession | undefined;
  #opening: KeptSession | undefined;
  /** Sessions in a row that could not be opened, or died before they had beaten once. */
  #attempts = 0;
  #paused = false;
  #readyWaiters: { resolve: () => void; reject: (error: HoldfastError) => void; since: number }[] = [];
  /** Claims that wait for a session. */
  readonly #unopened = new Set<Standing>();
  #pending = 0;
  #closed = false;

  constructor(options: KeeperOptions) {
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock, deadlineMs(options.ttlMs));
  }

  get busy(): boolean {
    return this.#pending > 0;
  }

  get session(): KeptSession | undefined {
    return this.#session?.alive() ? this.#session : undefined;
  }

  stand(request: ClaimRequest, events: StandingEvents): Standing {
    const standing = new Standing(request, events);
    const session = this.session;
    if (session) {
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
      this.#readyWaiters.push({ resolve, reject, since: this.#options.clock.now() });
      this.#demand();
    });
  }

  /** Pending acquires keep the process alive; held locks do not. */
  addPending(by: 1 | -1): void {
    const was = this.busy;
    this.#pending += by;
    if (was !== this.busy) this.#session?.busyChanged();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#failReady(new ConfigError('This Holdfast has been closed.'), true);
    await this.#session?.close();
  }

  // --- what sessions tell us ------------------------------------------------------------------------------------

  ended(session: KeptSession): void {
    if (this.#session === session) this.#session = undefined;
    if (session.proven) this.#attempts = 0;
    else this.#attempts += 1;
  }

  // --- opening --------------------------------------------------------------------------------------------------

  /** At once, also after a first failure; if sessions go on failing, after a pause that grows. */
  #demand(): void {
    if (this.#opening || this.#paused || this.#closed) return;
    if (this.#attempts < 2) return this.#open();
    const { clock, ttlMs } = this.#options;
    this.#paused = true;
    clock.timer(backoff(clock, this.#attempts - 2, ttlMs / 100, ttlMs / 6), () => {
      this.#paused = false;
      if (this.#wanted()) this.#open();
    });
  }

  #open(): void {
    if (this.#closed) return;
    const { clock } = this.#options;
    const session = new KeptSession(clock, this);
    this.#opening = session;
    const call = this.#deadlines.start(() => {
      this.#failedToOpen(new EngineError('The engine did not answer to open in time.'));
    });
    let sentAt = 0;
    let sentAtWall = 0;
    const opened = this.#options.connect().then((engine) => {
      sentAt = clock.now();
      sentAtWall = clock.wall();
      const { realm, ttlMs, label } = this.#options;
      return engine.open({ id: session.id, realm, ttlMs, label }, session);
    });
    opened.then(
      (engineSession) => {
        // A session that we gave up must not live on in the engine, and is never ours again.
        if (!call.answered() || this.#closed) return closeQuietly(engineSession);
        session.start(engineSession, sentAt, sentAtWall);
        if (session.alive()) return this.#opened(session);
        closeQuietly(engineSession);
        this.#failedToOpen(new EngineError('The engine ended the session as soon as it was open.'));
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
    const patienceEnds = hopeless ? Number.POSITIVE_INFINITY : this.#options.clock.now() - this.#options.ttlMs;
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
  session.close().catch(() => {
    // It dies by itself after its ttl.
  });
}
