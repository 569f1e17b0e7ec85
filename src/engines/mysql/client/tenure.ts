/**
 * For how long the server that we are connected to is the primary. An address may stay while the server behind it changes: the
 * old one lives on as a replica, keeps its connections, and answers every write with an error. After the first such error no
 * connection that was made before is worth more than that one.
 */
import type { RawConnection } from './port.js';

export class Tenure {
  #era = 0;
  #arrivedIn = 0;
  #arrival: Promise<void> = Promise.resolve();
  #prepare: () => Promise<void> = async () => {};
  readonly #eras = new WeakMap<RawConnection, number>();
  readonly #listeners = new Set<() => void>();

  /**
   * Calls it before the first use of each server that comes after this one: it may not have our tables yet. Those who come
   * meanwhile wait for it, and if it fails the next one tries again.
   */
  onArrival(prepare: () => Promise<void>): void {
    this.#prepare = prepare;
  }

  arrived(): Promise<void> {
    if (this.#arrivedIn === this.#era) return this.#arrival;
    const era = this.#era;
    this.#arrivedIn = era;
    this.#arrival = this.#prepare();
    this.#arrival.catch(() => {
      if (this.#arrivedIn === era) this.#arrivedIn = -1;
    });
    return this.#arrival;
  }

  /** Whether it is of this one, as those are that are seen for the first time. */
  has(connection: RawConnection): boolean {
    const era = this.#eras.get(connection) ?? this.#era;
    this.#eras.set(connection, era);
    return era === this.#era;
  }

  /** This connection's server takes no writes. */
  endOf(connection: RawConnection): void {
    // Not by one that was left behind already.
    if (!this.has(connection)) return;
    this.#era += 1;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Calls it at the end of this one, and of those after it, until it is told not to. */
  onEnd(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
