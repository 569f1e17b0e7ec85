import type { Clock, Timer } from './clock.js';

/** setTimeout fires at once for anything longer, which would turn a month's wait into none. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The same clock, whose timers may be longer than a runtime's: a year is a few of those, one after the other. */
export function withLongTimers(clock: Clock): Clock {
  return {
    ...clock,
    timer: (ms, run) => (ms <= LONGEST_TIMER_MS ? clock.timer(ms, run) : new LongTimer(clock, ms, run)),
  };
}

class LongTimer implements Timer {
  readonly #clock: Clock;
  readonly #run: () => void;
  #leftMs: number;
  #current: Timer;
  #unrefed = false;

  constructor(clock: Clock, ms: number, run: () => void) {
    this.#clock = clock;
    this.#run = run;
    this.#leftMs = ms;
    this.#current = this.#next();
  }

  close(): void {
    this.#current.close();
  }

  ref(): void {
    this.#unrefed = false;
    this.#current.ref();
  }

  unref(): void {
    this.#unrefed = true;
    this.#current.unref();
  }

  #next(): Timer {
    const ms = Math.min(this.#leftMs, LONGEST_TIMER_MS);
    this.#leftMs -= ms;
    const timer = this.#clock.timer(ms, () => {
      if (this.#leftMs > 0) this.#current = this.#next();
      else this.#run();
    });
    if (this.#unrefed) timer.unref();
    return timer;
  }
}
