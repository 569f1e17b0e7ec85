import type { Clock, Timer } from './clock.js';

/** A call that has not been answered yet. */
interface Pending {
  readonly at: number;
  readonly onSilence: () => void;
  answered: boolean;
}

/**
 * Our own deadline on every remote call: most client libraries wait for ever on a hung server.
 *
 * All calls of a keeper have the same limit, so they run out in the order they were made: one queue and one timer
 * serve any number of calls, and an answered call costs no timer at all.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #pending: Pending[] = [];
  #head = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock, limitMs: number) {
    this.#clock = clock;
    this.#limitMs = limitMs;
  }

  /** Watches one call. Answered or silent, never both: the returned function says whether the answer came in time. */
  start(onSilence: () => void): () => boolean {
    const call: Pending = { at: this.#clock.now() + this.#limitMs, onSilence, answered: false };
    this.#pending.push(call);
    if (!this.#timer) this.#arm(this.#limitMs);
    return () => {
      if (call.answered) return false;
      call.answered = true;
      this.#trim();
      return true;
    };
  }

  /** Rejects with `onSilence()`'s error when `work` does not settle in time. What comes later is dropped. */
  race<T>(work: Promise<T>, onSilence: () => Error): Promise<T> {
    return new Promise((resolve, reject) => {
      const answered = this.start(() => reject(onSilence()));
      work.then(
        (value) => answered() && resolve(value),
        (error: unknown) => answered() && reject(error as Error),
      );
    });
  }

  #arm(ms: number): void {
    this.#timer = this.#clock.timer(ms, () => this.#sweep());
    this.#timer.unref();
  }

  #sweep(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (let call = this.#pending[this.#head]; call && call.at <= now; call = this.#pending[this.#head]) {
      this.#head += 1;
      if (call.answered) continue;
      call.answered = true;
      call.onSilence();
    }
    this.#trim();
    const next = this.#pending[this.#head];
    if (next && !this.#timer) this.#arm(Math.max(1, next.at - now));
  }

  /** Drops answered calls at the head, so that a busy keeper's queue stays as short as its calls in flight. */
  #trim(): void {
    while (this.#pending[this.#head]?.answered) this.#head += 1;
    if (this.#head === this.#pending.length) this.#pending.length = 0;
    else if (this.#head >= 64) this.#pending.splice(0, this.#head);
    else return;
    this.#head = 0;
  }
}
