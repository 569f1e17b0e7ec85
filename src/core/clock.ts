import { randomBytes } from 'node:crypto';
import { outside } from './outside.js';
import { clearTimeout, Date, performance, setTimeout } from './real-time.js';

/**
 * Time, timers and randomness, injected everywhere, so that the whole core runs under a virtual clock and a seeded
 * scheduler. Nothing else in the core may read a clock, set a timer or draw a random number.
 */
export interface Clock {
  /** Monotonic milliseconds. Validity is counted on this one. */
  now(): number;
  /** Epoch milliseconds. Only to notice that a suspended machine's monotonic clock stood still. */
  wall(): number;
  /** 0 ≤ x < 1, for jitter. */
  random(): number;
  /** A new unguessable id: whoever knows a session's id can end it. */
  id(): string;
  timer(ms: number, run: () => void): Timer;
}

/** A timer keeps the process alive unless it is unref'd. */
export interface Timer {
  close(): unknown;
  ref(): unknown;
  unref(): unknown;
}

/** What `setTimeout` gives is only half known: in browsers a number, and from fake timers an object without `close`. */
class SystemTimer implements Timer {
  readonly #handle: Partial<NodeJS.Timeout> & (NodeJS.Timeout | number);

  constructor(ms: number, run: () => void) {
    this.#handle = setTimeout(run, ms);
  }

  close(): void {
    clearTimeout(this.#handle);
  }

  ref(): void {
    this.#handle.ref?.();
  }

  unref(): void {
    this.#handle.unref?.();
  }
}

export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  random: () => Math.random(),
  // Hexadecimal: people paste claim ids into command lines, where what begins with '-' would be an option.
  id: () => randomBytes(16).toString('hex'),
  timer: (ms, run) => outside(() => new SystemTimer(ms, run)),
};

/** A user's clock, whose timers are nobody's in particular either. */
export function detached(clock: Clock): Clock {
  return {
    now: () => clock.now(),
    wall: () => clock.wall(),
    random: () => clock.random(),
    id: () => clock.id(),
    timer: (ms, run) => outside(() => clock.timer(ms, run)),
  };
}
