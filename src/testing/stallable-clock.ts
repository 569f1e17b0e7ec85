import { randomBytes } from 'node:crypto';
import type { Clock, Timer } from '../index.js';

/**
 * The real clock, with timers that can be stopped: to the engine an instance whose timers stand still is a stopped
 * process, because it no longer beats. Time itself goes on, as it does for a process that was stopped, so whatever is
 * computed from the clock must turn out right without any timer.
 */
export class StallableClock implements Clock {
  #stalled = false;
  #timers = 0;
  /** Timers up to this number are hushed. */
  #hushed = 0;
  /** In the order in which they ran out while the clock was stalled. */
  readonly #overdue = new Set<StallableTimer>();

  now(): number {
    return performance.now();
  }

  wall(): number {
    return Date.now();
  }

  random(): number {
    return Math.random();
  }

  id(): string {
    return randomBytes(16).toString('base64url');
  }

  timer(ms: number, run: () => void): Timer {
    this.#timers += 1;
    const number = this.#timers;
    const timer: StallableTimer = new StallableTimer(ms, {
      ranOut: () => {
        if (this.#stalled || number <= this.#hushed) this.#overdue.add(timer);
        else run();
      },
      closed: () => this.#overdue.delete(timer),
    });
    return timer;
  }

  stall(): void {
    this.#stalled = true;
  }

  /** Stops the timers that are set now; later ones run. Whatever repeats itself is quiet then, but calls still work. */
  hush(): void {
    this.#hushed = this.#timers;
  }

  /** Everything that ran out meanwhile runs now, as in a process that goes on after it was stopped. */
  resume(): void {
    this.#stalled = false;
    this.#hushed = 0;
    const overdue = [...this.#overdue];
    this.#overdue.clear();
    for (const timer of overdue) timer.restart();
  }
}

interface TimerEvents {
  ranOut(): void;
  closed(): void;
}

class StallableTimer implements Timer {
  readonly #events: TimerEvents;
  #timeout: NodeJS.Timeout;
  #keepsAlive = true;

  constructor(ms: number, events: TimerEvents) {
    this.#events = events;
    this.#timeout = setTimeout(() => events.ranOut(), ms);
  }

  restart(): void {
    this.#timeout = setTimeout(() => this.#events.ranOut(), 0);
    if (!this.#keepsAlive) this.#timeout.unref();
  }

  close(): void {
    clearTimeout(this.#timeout);
    this.#events.closed();
  }

  ref(): void {
    this.#keepsAlive = true;
    this.#timeout.ref();
  }

  unref(): void {
    this.#keepsAlive = false;
    this.#timeout.unref();
  }
}
