import type { Clock, Timer } from '../index.js';
import { realClock } from './real-clock.js';

/**
 * Another clock, with timers that can be stopped: to the engine an instance whose timers stand still is a stopped
 * process, because it no longer beats. Time itself goes on, as it does for a process that was stopped, so whatever is
 * computed from the clock must turn out right without any timer.
 */
export class StallableClock implements Clock {
  readonly #clock: Clock;
  #stalled = false;
  #timers = 0;
  /** Timers up to this number are hushed. */
  #hushed = 0;
  /** In the order in which they ran out while the clock was stalled. */
  readonly #overdue = new Set<StallableTimer>();

  constructor(clock = realClock) {
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.now();
  }

  wall(): number {
    return this.#clock.wall();
  }

  random(): number {
    return this.#clock.random();
  }

  id(): string {
    return this.#clock.id();
  }

  timer(ms: number, run: () => void): Timer {
    this.#timers += 1;
    const number = this.#timers;
    const timer: StallableTimer = new StallableTimer(this.#clock, ms, {
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
  readonly #clock: Clock;
  readonly #events: TimerEvents;
  #timer: Timer;
  #keepsAlive = true;

  constructor(clock: Clock, ms: number, events: TimerEvents) {
    this.#clock = clock;
    this.#events = events;
    this.#timer = clock.timer(ms, () => events.ranOut());
  }

  restart(): void {
    this.#timer = this.#clock.timer(0, () => this.#events.ranOut());
    if (!this.#keepsAlive) this.#timer.unref();
  }

  close(): void {
    this.#timer.close();
    this.#events.closed();
  }

  ref(): void {
    this.#keepsAlive = true;
    this.#timer.ref();
  }

  unref(): void {
    this.#keepsAlive = false;
    this.#timer.unref();
  }
}
