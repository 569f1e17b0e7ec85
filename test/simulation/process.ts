import type { Clock, Timer } from '../../src/core/clock.js';
import type { Random } from './random.js';
import type { Scheduler } from './scheduler.js';

/** How far a process's clock may run from true time. Both ends may be off, and the margin of 10 % must cover both. */
const DRIFT = 0.04;

/** 2026: tokens are floored by the wall clock. */
const EPOCH = 1_790_000_000_000;

/**
 * One simulated process: its clocks, and whether it runs. What is due while it does not run waits for it.
 * - paused: stopped, its monotonic clock goes on (SIGSTOP, a blocked event loop)
 * - suspended: stopped, and its monotonic clock too; the wall clock goes on (a suspended machine)
 * - dead: nothing of it happens any more
 */
export class SimProcess {
  readonly name: string;
  readonly clock: Clock;
  state: 'running' | 'paused' | 'suspended' | 'dead' = 'running';
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #rate: number;
  readonly #startedAt: number;
  /** True time that the monotonic clock has not seen. */
  #missedMs = 0;
  #stoppedAt = 0;
  #wallJumpMs = 0;
  #ids = 0;
  #due: (() => void)[] = [];

  constructor(name: string, scheduler: Scheduler, random: Random) {
    this.name = name;
    this.#scheduler = scheduler;
    this.#random = random;
    // Both ends of the allowed drift are where the bugs are.
    this.#rate = 1 + random.pick([-DRIFT, 0, DRIFT, random.between(-DRIFT, DRIFT)]);
    this.#startedAt = random.between(0, 1e6);
    this.clock = {
      now: () => this.#now(),
      // One oscillator drives both clocks of a machine; this one shows whole milliseconds.
      wall: () => Math.floor(EPOCH + scheduler.now * this.#rate + this.#wallJumpMs),
      random: () => random.next(),
      id: () => `${name}.${(this.#ids += 1)}`,
      timer: (ms, run) => this.#timer(ms, run),
    };
  }

  get running(): boolean {
    return this.state === 'running';
  }

  /** Runs now, or as soon as the process runs again. */
  dispatch(run: () => void): void {
    if (this.state === 'running') run();
    else if (this.state !== 'dead') this.#due.push(run);
  }

  stop(how: 'paused' | 'suspended'): void {
    if (this.state !== 'running') return;
    this.state = how;
    this.#stoppedAt = this.#scheduler.now;
  }

  resume(): void {
    if (this.state !== 'paused' && this.state !== 'suspended') return;
    if (this.state === 'suspended') this.#missedMs += this.#scheduler.now - this.#stoppedAt;
    this.state = 'running';
    const due = this.#due;
    this.#due = [];
    for (const run of due) this.#scheduler.after(0, () => this.dispatch(run));
  }

  kill(): void {
    this.state = 'dead';
    this.#due = [];
  }

  jumpWall(ms: number): void {
    this.#wallJumpMs += ms;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#timer(ms, resolve));
  }

  get random(): Random {
    return this.#random;
  }

  #now(): number {
    const frozenMs = this.state === 'suspended' ? this.#scheduler.now - this.#stoppedAt : 0;
    return this.#startedAt + (this.#scheduler.now - this.#missedMs - frozenMs) * this.#rate;
  }

  #timer(ms: number, run: () => void): Timer {
    const dueAt = this.#now() + Math.max(1, ms);
    let open = true;
    const arm = (): void => {
      this.#scheduler.after((dueAt - this.#now()) / this.#rate, () => this.dispatch(fire));
    };
    const fire = (): void => {
      if (!open) return;
      // A suspension has moved the due time.
      if (this.#now() < dueAt - 0.001) return arm();
      open = false;
      run();
    };
    arm();
    const timer: Timer = { close: () => (open = false), ref: () => timer, unref: () => timer };
    return timer;
  }
}
