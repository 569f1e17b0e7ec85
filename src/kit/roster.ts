import type { Roster } from '../core/engine.js';

/** A claim as it stands in the engine. */
export interface StandingClaim {
  readonly id: string;
  readonly serial: number;
  readonly held: boolean;
}

/**
 * Whether the core believes to have what stands: as many, as many of them held, and the same ones, which a sum of their serials
 * tells well enough. What the core has not settled yet is left out on both sides.
 */
export function agrees(roster: Roster, standing: Iterable<StandingClaim>): boolean {
  const unsettled = new Set(roster.unsettled);
  let [count, held, checksum] = [0, 0, 0];
  for (const claim of standing) {
    if (unsettled.has(claim.id)) continue;
    count += 1;
    if (claim.held) held += 1;
    checksum = (checksum + claim.serial) >>> 0;
  }
  return count === roster.count && held === roster.held && checksum === roster.checksum;
}
