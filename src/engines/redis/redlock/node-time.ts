import type { Clock } from '../../../core/clock.js';

const MOST_TOLERANCE_MS = 2_500;

/** How far a token may be from a node's clock. */
export function toleranceMs(ttlMs: number): number {
  return Math.min(ttlMs / 4, MOST_TOLERANCE_MS);
}

/** Longer than a smaller token could still be close to the node's clock, whatever the ttl of the one who proposes it. */
export function rememberMs(ttlMs: number): number {
  return Math.max(3 * ttlMs, 4 * MOST_TOLERANCE_MS);
}

/**
 * What time it is on the nodes (µs), reckoned on our monotonic clock: a jump of our wall clock does not matter.
 *
 * When the nodes' clocks jump, locks run out before their holders know. So we do not follow them at once: what we propose
 * is too far from their clocks, they refuse it, and after one ttl, when whoever held a lock by the old clocks has lost it
 * for certain, we believe them. Who has just come compares them with its own wall clock.
 */
export class NodeTime {
  readonly #clock: Clock;
  #aheadUs: number;
  #disagreeSince: number | undefined;
  #last = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#aheadUs = this.ahead(clock.wall() * 1_000);
  }

  ahead(nodeUs: number): number {
    return nodeUs - this.#clock.now() * 1_000;
  }

  /** What all nodes that answered are ahead. The one in the middle counts: a few wrong clocks do not lead us astray. */
  heard(aheadUs: readonly number[], ttlMs: number): void {
    const middle = aheadUs.toSorted((one, other) => one - other)[Math.floor(aheadUs.length / 2)];
    if (middle === undefined) return;
    const now = this.#clock.now();
    this.#disagreeSince ??= now;
    const agrees = Math.abs(middle - this.#aheadUs) <= toleranceMs(ttlMs) * 1_000;
    if (!agrees && now - this.#disagreeSince < ttlMs) return;
    this.#aheadUs = middle;
    this.#disagreeSince = undefined;
    // What we proposed by the wrong clock was never accepted.
    if (!agrees) this.#last = 0;
  }

  /** A token that was never proposed here before, close to the nodes' clocks. */
  propose(floor: number): number {
    this.#last = Math.max(Math.floor(this.#aheadUs + this.#clock.now() * 1_000), this.#last + 1, floor);
    return this.#last;
  }
}
