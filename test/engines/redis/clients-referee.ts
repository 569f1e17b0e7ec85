/**
 * Sees every lease that anybody in this test gets, and looks at all of them at once, all the time: the leases live in
 * one process, so two that are held at one instant are two believers.
 */
import assert from 'node:assert/strict';
import type { Lease } from '../../../src/index.js';

const LOOK_EVERY_MS = 2;

export class Referee implements Disposable {
  readonly #leases: Lease[] = [];
  readonly #violations: string[] = [];
  readonly #timer = setInterval(() => this.#look(), LOOK_EVERY_MS);

  get grants(): number {
    return this.#leases.length;
  }

  /** Call it with what `acquire` gave, before anything else happens. */
  granted(lease: Lease): void {
    const before = this.#leases.findLast(({ name }) => name === lease.name);
    if (before !== undefined && before.token >= lease.token)
      this.#violations.push(`${lease.name}: token ${lease.token} after ${before.token}`);
    this.#leases.push(lease);
    this.#look();
  }

  /** Throws if ever two were held at once, or a token did not grow. */
  judge(): void {
    this.#look();
    assert.deepEqual(this.#violations, []);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const held = this.#leases.filter((lease) => lease.held);
    for (const [at, lease] of held.entries()) {
      const other = held.slice(at + 1).find(({ name }) => name === lease.name);
      if (other) this.#violations.push(`${lease.name}: ${lease.token} and ${other.token} are held at once`);
    }
  }
}
