import type { SimProcess } from './process.js';
import type { Random } from './random.js';
import type { Scheduler } from './scheduler.js';

/** Less than the healed phase, so that what is late has come when everything is counted. */
const LATEST_MS = 7_000;

/** Messages between processes and the server: lost, late, twice, and in any order. */
export class Network {
  meanDelayMs: number;
  lossRate: number;
  duplicateRate: number;
  /** Pub/sub loses more than calls do: a subscriber that reconnects has missed what was said meanwhile. */
  pushLossRate: number;
  readonly #cutOff = new Set<SimProcess>();
  readonly #deaf = new Set<SimProcess>();
  readonly #scheduler: Scheduler;
  readonly #random: Random;

  constructor(scheduler: Scheduler, random: Random) {
    this.#scheduler = scheduler;
    this.#random = random;
    const quality = random.next();
    this.meanDelayMs = quality < 0.5 ? random.between(0.5, 5) : random.between(5, 150);
    this.lossRate = random.chance(0.4) ? 0 : random.between(0, 0.15);
    this.duplicateRate = random.chance(0.5) ? 0 : random.between(0, 0.15);
    this.pushLossRate = random.chance(0.6) ? 0 : random.between(0, 0.6);
  }

  heal(): void {
    this.pushLossRate = 0;
    this.meanDelayMs = Math.min(this.meanDelayMs, 3);
    this.lossRate = 0;
    this.duplicateRate = 0;
    this.#cutOff.clear();
    this.#deaf.clear();
  }

  /** Nothing passes, in either direction. */
  cut(process: SimProcess, on: boolean): void {
    if (on) this.#cutOff.add(process);
    else this.#cutOff.delete(process);
  }

  /** What it sends arrives; what is sent to it does not: replies and pushes are lost. */
  deafen(process: SimProcess, on: boolean): void {
    if (on) this.#deaf.add(process);
    else this.#deaf.delete(process);
  }

  toServer(from: SimProcess, deliver: () => void): void {
    if (!this.#cutOff.has(from)) this.#send(deliver);
  }

  toProcess(to: SimProcess, deliver: () => void): void {
    this.#send(() => {
      if (!this.#cutOff.has(to) && !this.#deaf.has(to)) to.dispatch(deliver);
    });
  }

  push(to: SimProcess, deliver: () => void): void {
    if (!this.#random.chance(this.pushLossRate)) this.toProcess(to, deliver);
  }

  #send(deliver: () => void): void {
    const random = this.#random;
    if (random.chance(this.lossRate)) return;
    this.#scheduler.after(random.around(this.meanDelayMs), deliver);
    // A duplicate may come much later than the original, long after what it belongs to is over; but not after the end.
    if (!random.chance(this.duplicateRate)) return;
    this.#scheduler.after(Math.min(LATEST_MS, random.around(this.meanDelayMs * 20)), deliver);
  }
}
