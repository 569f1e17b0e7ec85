import type { Clock, Timer } from './clock.js';

/** A call that has not been answered yet. */
class Call {
  /** The tick at which it counts as silent. */
  readonly until: number;
  readonly onSilence: () => void;
  /** Somebody awaits it: until then the process must not end. */
  readonly awaited: boolean;
  over = false;
  readonly #deadlines: Deadlines;

  constructor(deadlines: Deadlines, until: number, onSilence: () => void, awaited: boolean) {
    this.#deadlines = deadlines;
    this.until = until;
    this.onSilence = onSilence;
    this.awaited = awaited;
  }

  /** The answer is there. False: too late, it has counted as silent. */
  answered(): boolean {
    if (this.over) return false;
    this.over = true;
    if (this.awaited) this.#deadlines.addAwaited(-1);
    this.#deadlines.trim();
    return true;
  }
}

/** A limit is this many ticks. A call is made somewhere inside a tick, so it has between 4/5 and 5/5 of the limit. */
const TICKS = 5;

/**
 * Our own deadline on every remote call: most client libraries wait for ever on a hung server.
 *
 * All calls of a session have the same limit, so they run out in the order in which they were made: one queue and one
 * ticking timer serve any number of calls, and a call that is answered costs neither a timer nor a look at the clock.
 * Time in which our own event loop stood still is not held against the engine.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #pending: Call[] = [];
  #head = 0;
  #tick = 0;
  #timer: Timer | undefined;
  #awaited = 0;

  constructor(clock: Clock, limitMs: number) {
    this.#clock = clock;
    this.#tickMs = limitMs / TICKS;
  }

  /** Watches one call. Answered or silent, never both. */
  start(onSilence: () => void, awaited = false): Call {
    const call = new Call(this, this.#tick + TICKS, onSilence, awaited);
    this.#pending.push(call);
    if (!this.#timer) this.#arm();
    if (awaited) this.addAwaited(1);
    return call;
  }

  addAwaited(by: 1 | -1): void {
    this.#awaited += by;
    if (this.#awaited === 0) this.#timer?.unref();
    else if (this.#awaited === by) this.#timer?.ref();
  }

  /** Rejects with `onSilence()`'s error when `work` does not settle in time. What comes later is dropped. */
  race<T>(work: Promise<T>, onSilence: () => Error): Promise<T> {
    return new Promise((resolve, reject) => {
      const call = this.start(() => reject(onSilence()), true);
      work.then(
        (value) => call.answered() && resolve(value),
        (error: unknown) => call.answered() && reject(error as Error),
      );
    });
  }

  /** Nothing is awaited any more: what is pending counts as silent. */
  end(): void {
    for (const call of this.#pending.slice(this.#head)) if (call.answered()) call.onSilence();
    this.#timer?.close();
    this.#timer = undefined;
  }

  #arm(): void {
    this.#timer = this.#clock.timer(this.#tickMs, () => this.#sweep());
    if (this.#awaited === 0) this.#timer.unref();
  }

  #sweep(): void {
    this.#timer = undefined;
    this.#tick += 1;
    for (let call = this.#pending[this.#head]; call && call.until <= this.#tick; call = this.#pending[this.#head]) {
      this.#head += 1;
      if (call.over) continue;
      call.over = true;
      if (call.awaited) this.addAwaited(-1);
      call.onSilence();
    }
    this.trim();
    if (this.#pending.length > 0 && !this.#timer) this.#arm();
  }

  /**
   * Drops answered calls at both ends, so that a busy session's queue stays as short as its calls in flight. From the tail first:
   * one call at a time, which is the most usual, is only pushed and popped then.
   */
  trim(): void {
    const pending = this.#pending;
    while (pending.length > this.#head && pending[pending.length - 1]?.over) pending.pop();
    while (pending[this.#head]?.over) this.#head += 1;
    if (this.#head === 0) return;
    if (this.#head === pending.length) pending.length = 0;
    else if (this.#head >= 64) pending.splice(0, this.#head);
    else return;
    this.#head = 0;
  }
}
