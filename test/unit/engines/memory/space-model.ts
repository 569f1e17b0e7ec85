import type { Claim, LineRef, Place, Pulse } from '../../../../src/core/engine.js';
import { holders } from '../../../../src/core/line.js';

export interface ModelClaim {
  readonly id: string;
  readonly session: string;
  readonly line: string;
  readonly ref: LineRef;
  readonly serial: number;
  readonly token: bigint;
  weight: number;
  evicted: string | undefined;
}

interface ModelSession {
  readonly ttlMs: number;
  expiresAt: number;
}

interface ModelLine {
  readonly capacity: number;
  claims: ModelClaim[];
}

/** What an engine must do, said as plainly as possible: arrays, the pure rule, and no care for speed. */
export class SpaceModel {
  now = 1_000;
  wall = 1_700_000_000_000;
  readonly #sessions = new Map<string, ModelSession>();
  readonly #lines = new Map<string, ModelLine>();

  open(id: string, ttlMs: number): void {
    this.#sessions.set(id, { ttlMs, expiresAt: this.now + ttlMs });
  }

  enter(session: string, claim: Claim, mint: () => bigint): Place {
    this.reap();
    if (!this.#sessions.has(session)) return { state: 'gone' };
    const key = keyOf(claim.line);
    if (!this.find(session, claim.id)) {
      const line = this.#lines.get(key) ?? { capacity: claim.capacity, claims: [] };
      if (line.capacity !== claim.capacity) return { state: 'mismatch', capacity: line.capacity };
      const weights = [...line.claims.map(({ weight }) => weight), claim.weight];
      if (!claim.wait && holders(weights, line.capacity) < weights.length) return { state: 'refused' };
      const { id, serial, weight } = claim;
      line.claims.push({
        id,
        session,
        line: key,
        ref: claim.line,
        serial,
        weight,
        token: mint(),
        evicted: undefined,
      });
      this.#lines.set(key, line);
    }
    const { token } = this.find(session, claim.id)!;
    return this.#holds(claim.id) ? { state: 'held', token } : { state: 'waiting' };
  }

  leave(session: string, id: string): boolean {
    this.reap();
    const found = this.find(session, id);
    this.#keep((claim) => claim !== found);
    return found !== undefined;
  }

  reweigh(session: string, id: string, weight: number): void {
    const claim = this.find(session, id);
    if (claim) claim.weight = Math.min(claim.weight, weight);
  }

  beat(session: string, differs: boolean): Pulse {
    const alive = this.#sessions.get(session);
    if (!alive) return { alive: false };
    alive.expiresAt = this.now + alive.ttlMs;
    if (!differs) return { alive: true };
    const index = this.claimsOf(session).map(({ id, ref, token }) => ({
      id,
      line: ref,
      state: this.#holds(id) ? ('held' as const) : ('waiting' as const),
      token,
    }));
    return { alive: true, index };
  }

  close(session: string): void {
    this.#sessions.delete(session);
    this.#keep((claim) => claim.session !== session);
  }

  /** All that are dead by now go at once, with all that they had. */
  reap(): void {
    for (const [id, { expiresAt }] of this.#sessions) if (expiresAt <= this.now) this.#sessions.delete(id);
    this.#keep(({ session }) => this.#sessions.has(session));
  }

  evict(id: string, name: string, reason: string): boolean {
    const claim = this.#all().find((one) => one.id === id && one.ref.name === name);
    if (claim) claim.evicted = reason;
    return claim !== undefined;
  }

  // --- what there is to see -------------------------------------------------------------------------------------

  find(session: string, id: string): ModelClaim | undefined {
    return this.#all().find((claim) => claim.id === id && claim.session === session);
  }

  /** In the order in which they entered. */
  claimsOf(session: string): ModelClaim[] {
    const own = this.#all().filter((claim) => claim.session === session);
    return own.sort((a, b) => (a.token < b.token ? -1 : 1));
  }

  held(): ModelClaim[] {
    return [...this.#lines.values()].flatMap(holdersOf);
  }

  roster(session: string, unsettled: readonly string[]): { count: number; held: number; checksum: number } {
    const counted = this.claimsOf(session).filter(({ id }) => !unsettled.includes(id));
    return {
      count: counted.length,
      held: counted.filter(({ id }) => this.#holds(id)).length,
      checksum: counted.reduce((sum, { serial }) => (sum + serial) >>> 0, 0),
    };
  }

  view(): { key: string; capacity: number; claims: object[] }[] {
    return [...this.#lines.entries()]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, line]) => ({
        key,
        capacity: line.capacity,
        claims: line.claims.map(({ id, weight, token }) => ({
          id,
          state: this.#holds(id) ? 'held' : 'waiting',
          weight,
          token,
        })),
      }));
  }

  #holds(id: string): boolean {
    return this.held().some((claim) => claim.id === id);
  }

  #all(): ModelClaim[] {
    return [...this.#lines.values()].flatMap(({ claims }) => claims);
  }

  /** A line without claims is forgotten, and with it its capacity. */
  #keep(keeps: (claim: ModelClaim) => boolean): void {
    for (const [key, line] of this.#lines) {
      line.claims = line.claims.filter(keeps);
      if (line.claims.length === 0) this.#lines.delete(key);
    }
  }
}

function holdersOf({ capacity, claims }: ModelLine): ModelClaim[] {
  return claims.slice(
    0,
    holders(
      claims.map(({ weight }) => weight),
      capacity,
    ),
  );
}

export function keyOf({ kind, name }: LineRef): string {
  return `${kind}:${name}`;
}
