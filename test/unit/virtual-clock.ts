import type { Clock, Timer } from '../../src/core/clock.js';

interface VirtualTimer extends Timer {
  readonly at: number;
  /** Timers of the same instant run in the order in which they were set. */
  readonly order: number;
  readonly run: () => void;
  refed: boolean;
}

/** Time that passes only when a test says so. Jitter is always the same: half of its range. */
export class VirtualClock implements Clock {
  /** How many timers have ever been set. */
  timersSet = 0;
  readonly #timers = new Set<VirtualTimer>();
  #now = 0;
  #wall = 1_700_000_000_000;
  #ids = 0;

  now = (): number => this.#now;
  /** In whole milliseconds, as Date.now() counts them. */
  wall = (): number => Math.floor(this.#wall);
  random = (): number => 0.5;

  id = (): string => {
    this.#ids += 1;
    return `id${this.#ids}`;
  };

  timer = (ms: number, run: () => void): Timer => {
    this.timersSet += 1;
    const timer: VirtualTimer = {
      at: this.#now + Math.max(0, ms),
      order: this.timersSet,
      run,
      refed: true,
      close: () => this.#timers.delete(timer),
      ref: () => (timer.refed = true),
      unref: () => (timer.refed = false),
    };
    this.#timers.add(timer);
    return timer;
  };

  get timersPending(): number {
    return this.#timers.size;
  }

  /** Whether a process with these timers, and nothing else, would go on living. */
  get keepsProcessAlive(): boolean {
    return [...this.#timers].some(({ refed }) => refed);
  }

  /** Lets time pass: timers run when they are due, and what they caused settles before time goes on. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settled();
    for (let next = this.#due(end); next; next = this.#due(end)) {
      this.#timers.delete(next);
      this.#pass(Math.max(0, next.at - this.#now));
      next.run();
      await settled();
    }
    this.#pass(end - this.#now);
    await settled();
  }

  /** Time goes on to the next timer that is set, if any is, and no further. */
  async advanceToNext(): Promise<void> {
    const next = this.#due(Number.POSITIVE_INFINITY);
    if (next) await this.advance(Math.max(0, next.at - this.#now));
  }

  /** A stalled event loop: time passes and no timer has run yet. */
  stall(ms: number): void {
    this.#pass(ms);
  }

  /** A suspended machine, or somebody who set the time: only the wall clock moves. */
  moveWall(ms: number): void {
    this.#wall += ms;
  }

  #pass(ms: number): void {
    this.#now += ms;
    this.#wall += ms;
  }

  #due(end: number): VirtualTimer | undefined {
    let first: VirtualTimer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > end) continue;
      if (!first || timer.at < first.at || (timer.at === first.at && timer.order < first.order)) first = timer;
    }
    return first;
  }
}

/** All promise reactions have run: immediates come after the microtask queue is empty. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
