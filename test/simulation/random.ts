/** Seeded randomness: the same seed gives the same run, event for event. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 0 ≤ x < 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  int(below: number): number {
    return Math.floor(this.next() * below);
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  /** Exponential: mostly short, sometimes long. */
  around(mean: number): number {
    return -Math.log(1 - this.next()) * mean;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.int(items.length)] as T;
  }

  /** A stream of its own, so that a change in one part of the simulation does not move all the others. */
  fork(): Random {
    return new Random(Math.floor(this.next() * 2 ** 32));
  }
}
