import { forgetAbort, quitOnAbort } from './abort.js';
import type { Clock, Timer } from './clock.js';
import type { Deadlines } from './deadlines.js';
import type { Link } from './queue.js';
import type { Frame, Wait } from './reentrancy.js';
import type { Turn } from './turn.js';

export interface Patience {
  /** None: for ever. 0: one try. */
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  /** When one try is given up. Default: after as long as the engine may take for one answer. */
  readonly tryEndsAt?: number | undefined;
}

/** Time enough for a far engine to say who holds the lock. */
const LOOK_AHEAD_MS = 500;

/** Where a waiter stands at the moment: a cohort, or a floor. */
export interface Station {
  /** It is settled and must not be served any more. */
  dropped(waiter: Waiter): void;
  timedOut(waiter: Waiter): void;
  /** A timeout will soon be over: what is to be said then can be looked up now. */
  nearlyOver(waiter: Waiter): void;
}

/** One pending acquire. It is settled exactly once: by a turn, by `undefined` (tried and busy), or by an error. */
export class Waiter {
  readonly promise: Promise<Turn | undefined>;
  readonly startedAt: number;
  readonly weight: number;
  readonly patience: Patience;
  /** Not to be queued: hold at once or give up. */
  readonly triesOnce: boolean;
  /** Its wait ends whatever others do. */
  readonly endsByItself: boolean;
  /** The run that asks, if one does. */
  readonly frame: Frame | undefined;
  at: Station | undefined;
  /** How often the engine had answered when it began to wait. */
  answersBefore = 0;
  link: Link<Waiter> | undefined;
  /** Set while code inside a frame waits, for the deadlock check. */
  wait: Wait | undefined;
  settled = false;
  #resolve!: (turn: Turn | undefined) => void;
  #reject!: (error: unknown) => void;
  #timer: Timer | undefined;
  #watched = false;
  #trying: { answered(): boolean } | undefined;

  constructor(clock: Clock, weight: number, patience: Patience, frame?: Frame) {
    this.startedAt = clock.now();
    this.weight = weight;
    this.patience = patience;
    this.frame = frame;
    this.triesOnce = patience.timeoutMs === 0;
    this.endsByItself = patience.timeoutMs !== undefined || patience.signal !== undefined;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** Infinity: it waits for ever. */
  get timeoutMs(): number {
    return this.patience.timeoutMs ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Starts to count. An abort rejects with the signal's own reason; on a timeout the station knows what to say. One try has no
   * timeout, but it does not wait for longer than the engine may take for one answer.
   */
  watch(clock: Clock, tries: Deadlines | undefined): void {
    const { timeoutMs, signal } = this.patience;
    if (this.settled || this.#watched) return;
    this.#watched = true;
    if (this.triesOnce) this.#watchTry(clock, tries);
    else if (timeoutMs !== undefined) this.#countDown(clock, timeoutMs);
    if (!signal) return;
    // What was noticed on the way here may have aborted it.
    if (signal.aborted) this.reject(signal.reason);
    else quitOnAbort(signal, this);
  }

  #watchTry(clock: Clock, tries: Deadlines | undefined): void {
    const { tryEndsAt } = this.patience;
    const giveUp = (): void => this.at?.timedOut(this);
    if (tryEndsAt === undefined) this.#trying = tries?.start(giveUp);
    else this.#timer = clock.timer(Math.max(0, tryEndsAt - clock.now()), giveUp);
  }

  #countDown(clock: Clock, timeoutMs: number): void {
    const aheadMs = Math.min(LOOK_AHEAD_MS, timeoutMs / 2);
    this.#timer = clock.timer(timeoutMs - aheadMs, () => {
      // No more than was to be left: under fake timers only timers may tell that time has passed.
      const leftMs = Math.min(aheadMs, Math.max(0, this.startedAt + timeoutMs - clock.now()));
      this.#timer = clock.timer(leftMs, () => this.at?.timedOut(this));
      this.at?.nearlyOver(this);
    });
  }

  /** It begins anew at another station, with what is left of its time. */
  goElsewhere(begin: () => void): void {
    if (this.settled) return;
    this.wait?.end();
    this.wait = undefined;
    try {
      begin();
    } catch (error) {
      this.reject(error);
    }
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
    this.#trying?.answered();
    if (this.patience.signal) forgetAbort(this.patience.signal, this);
    this.wait?.end();
    this.at?.dropped(this);
    return true;
  }
}
