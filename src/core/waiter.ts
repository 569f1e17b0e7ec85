import { forgetAbort, quitOnAbort } from './abort.js';
import type { Clock, Timer } from './clock.js';
import type { Link } from './queue.js';
import type { Wait } from './reentrancy.js';
import type { Turn } from './turn.js';

export interface Patience {
  /** None: for ever. 0: one try. */
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Where a waiter stands at the moment: a cohort, or a floor. */
export interface Station {
  /** It is settled and must not be served any more. */
  dropped(waiter: Waiter): void;
  timedOut(waiter: Waiter): void;
}

/** One pending acquire. It is settled exactly once: by a turn, by `undefined` (tried and busy), or by an error. */
export class Waiter {
  readonly promise: Promise<Turn | undefined>;
  readonly startedAt: number;
  readonly weight: number;
  readonly patience: Patience;
  at: Station | undefined;
  link: Link<Waiter> | undefined;
  /** Set while code inside a frame waits, for the deadlock check. */
  wait: Wait | undefined;
  settled = false;
  #resolve!: (turn: Turn | undefined) => void;
  #reject!: (error: unknown) => void;
  #timer: Timer | undefined;

  constructor(clock: Clock, weight: number, patience: Patience) {
    this.startedAt = clock.now();
    this.weight = weight;
    this.patience = patience;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** Not to be queued: hold at once or give up. */
  get triesOnce(): boolean {
    return this.patience.timeoutMs === 0;
  }

  /** Starts to count. An abort rejects with the signal's own reason; on a timeout the station knows what to say. */
  watch(clock: Clock): void {
    const { timeoutMs, signal } = this.patience;
    if (this.settled) return;
    if (timeoutMs) this.#timer = clock.timer(timeoutMs, () => this.at?.timedOut(this));
    if (signal) quitOnAbort(signal, this);
  }

  resolve(turn: Turn | undefined): void {
    if (this.#settle()) this.#resolve(turn);
  }

  reject(error: unknown): void {
    if (this.#settle()) this.#reject(error);
  }

  #settle(): boolean {
    if (this.settled) return false;
    this.settled = true;
    this.#timer?.close();
    if (this.patience.signal) forgetAbort(this.patience.signal, this);
    this.wait?.end();
    this.at?.dropped(this);
    return true;
  }
}
