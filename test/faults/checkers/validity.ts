/** A run says something only if the lock worked before the first fault, and faults came when it was held. */
import { STARVED } from '../history.js';
import type { Lease } from '../leases.js';
import type { Fault, Run } from '../run.js';

const ENOUGH_BEFORE_FAULTS = 20;

export interface Hits {
  /** Began while anybody held anything. */
  readonly whileHeld: number;
  /** Done to a worker while it held something itself. */
  readonly onHolder: number;
}

export function acquiredBeforeFaults(run: Run): number {
  const first = strikes(run)[0]?.from ?? Number.POSITIVE_INFINITY;
  return [...run.leases.values()].filter(({ grant }) => grant.at < first).length;
}

/** The last answer of `held` is before a stall, so what counts is that it had not let go and knew of no loss. */
export function hitsOf(run: Run): Hits {
  const holds = new Holds([...run.leases.values()]);
  const faults = strikes(run);
  const hit = faults.map((fault) => holds.at(fault));
  return {
    whileHeld: hit.filter((holders) => holders.length > 0).length,
    onHolder: faults.filter((fault, at) => hit[at]!.some(({ worker }) => worker === fault.target)).length,
  };
}

function strikes(run: Run): readonly Fault[] {
  return run.faults.filter(({ nemesis }) => nemesis !== STARVED);
}

/** Why the run says nothing; empty if it says something. */
export function whyVoid(run: Run): readonly string[] {
  const reasons: string[] = [];
  const before = acquiredBeforeFaults(run);
  if (before < ENOUGH_BEFORE_FAULTS)
    reasons.push(`Only ${before} acquisitions came before the first fault; ${ENOUGH_BEFORE_FAULTS} are needed.`);
  if (hitsOf(run).whileHeld === 0) reasons.push('No fault began while a lease was held.');
  return reasons;
}

/** Faults and grants walked through side by side. */
class Holds {
  readonly #granted: readonly Lease[];
  #next = 0;
  #open: Lease[] = [];

  constructor(leases: readonly Lease[]) {
    this.#granted = leases.toSorted((a, b) => a.grant.at - b.grant.at);
  }

  /** Faults come in order of time. */
  at({ from }: Fault): readonly Lease[] {
    for (let next = this.#granted[this.#next]; next && next.grant.at <= from; next = this.#granted[this.#next]) {
      this.#open.push(next);
      this.#next += 1;
    }
    this.#open = this.#open.filter(({ over }) => over > from);
    return this.#open;
  }
}
