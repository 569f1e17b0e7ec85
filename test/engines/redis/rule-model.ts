import type { Claim, LineRef, Place, Roster } from '../../../src/core/engine.js';
import { holders } from '../../../src/core/line.js';

export interface ModelClaim {
  readonly claim: Claim;
  readonly session: string;
  weight: number;
  evicted: string | undefined;
}

interface ModelLine {
  readonly ref: LineRef;
  readonly capacity: number;
  claims: ModelClaim[];
}

export type ModelPlace = Place['state'];

/** What the scripts must do, said as plainly as possible: arrays, the pure rule, and leaps of time instead of a clock. */
export class RuleModel {
  /** How many leaps each living session survives from now on. */
  readonly #sessions = new Map<string, { readonly leaps: number; left: number }>();
  readonly #lines = new Map<string, ModelLine>();

  open(id: string, leaps: number): void {
    this.#sessions.set(id, { leaps, left: leaps });
  }

  enter(session: string, claim: Claim): ModelPlace {
    if (!this.lives(session)) return 'gone';
    if (!this.find(claim.id)) {
      const key = keyOf(claim.line);
      const line = this.#lines.get(key) ?? { ref: claim.line, capacity: claim.capacity, claims: [] };
      if (line.capacity !== claim.capacity) return 'mismatch';
      const weights = [...line.claims.map(({ weight }) => weight), claim.weight];
      if (!claim.wait && holders(weights, line.capacity) < weights.length) return 'refused';
      line.claims.push({ claim, session, weight: claim.weight, evicted: undefined });
      this.#lines.set(key, line);
    }
    return this.holds(claim.id) ? 'held' : 'waiting';
  }

  leave(session: string, id: string): boolean {
    const found = this.find(id);
    if (found?.session !== session) return false;
    this.#keep((one) => one !== found);
    return true;
  }

  reweigh(session: string, id: string, weight: number): void {
    const found = this.find(id);
    if (found?.session === session) found.weight = Math.min(found.weight, weight);
  }

  beat(session: string): boolean {
    const living = this.#sessions.get(session);
    if (living) living.left = living.leaps;
    return living !== undefined;
  }

  evict(id: string, reason: string): boolean {
    const found = this.find(id);
    if (found) found.evicted = reason;
    return found !== undefined;
  }

  close(session: string): void {
    this.#sessions.delete(session);
    this.#keep((one) => one.session !== session);
  }

  /** Time leaps; who has not beaten for too long is dead, and all that it had is gone. */
  leap(): void {
    for (const [id, session] of this.#sessions) {
      session.left -= 1;
      if (session.left < 0) this.close(id);
    }
  }

  // --- what there is to see -------------------------------------------------------------------------------------

  lives(session: string): boolean {
    return this.#sessions.has(session);
  }

  /** The ids of all claims. */
  standing(): ReadonlySet<string> {
    return new Set(this.#all().map(({ claim }) => claim.id));
  }

  find(id: string): ModelClaim | undefined {
    return this.#all().find(({ claim }) => claim.id === id);
  }

  claimsOf(session: string): ModelClaim[] {
    return this.#all().filter((one) => one.session === session);
  }

  holds(id: string): boolean {
    return this.held().some(({ claim }) => claim.id === id);
  }

  held(): ModelClaim[] {
    return [...this.#lines.values()].flatMap(({ capacity, claims }) => {
      const weights = claims.map(({ weight }) => weight);
      return claims.slice(0, holders(weights, capacity));
    });
  }

  capacityOf(line: LineRef): number | undefined {
    return this.#lines.get(keyOf(line))?.capacity;
  }

  /** What the session should believe that it has. */
  roster(session: string, unsettled: readonly string[]): Roster {
    const counted = this.claimsOf(session).filter(({ claim }) => !unsettled.includes(claim.id));
    return {
      count: counted.length,
      held: counted.filter(({ claim }) => this.holds(claim.id)).length,
      checksum: counted.reduce((sum, { claim }) => (sum + claim.serial) >>> 0, 0),
      unsettled,
    };
  }

  view(): { key: string; capacity: number; claims: { id: string; state: string; weight: number; note: string }[] }[] {
    return [...this.#lines.entries()]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, { capacity, claims }]) => ({
        key,
        capacity,
        claims: claims.map(({ claim: { id, note }, weight }) => ({
          id,
          state: this.holds(id) ? 'held' : 'waiting',
          weight,
          note,
        })),
      }));
  }

  #all(): ModelClaim[] {
    return [...this.#lines.values()].flatMap(({ claims }) => claims);
  }

  /** A line without claims is forgotten, and with it its capacity. */
  #keep(keeps: (one: ModelClaim) => boolean): void {
    for (const [key, line] of this.#lines) {
      line.claims = line.claims.filter(keeps);
      if (line.claims.length === 0) this.#lines.delete(key);
    }
  }
}

export function keyOf({ kind, name }: LineRef): string {
  return `${kind}:${name}`;
}
