import type { Clock } from '../../core/clock.js';
import type { Claim, ClaimRef, Place, Pulse, Roster, Session } from '../../core/engine.js';
import { type Space, timeOf } from './protocol.js';

export class MemorySession implements Session {
  readonly ttlMs: number;
  readonly #space: Space;
  readonly #id: string;
  readonly #clock: Clock;

  constructor(space: Space, id: string, ttlMs: number, clock: Clock) {
    this.#space = space;
    this.#id = id;
    this.ttlMs = ttlMs;
    this.#clock = clock;
  }

  enter(claim: Claim): Promise<Place> {
    return Promise.resolve(this.#space.enter(this.#id, claim, timeOf(this.#clock)));
  }

  leave(claim: ClaimRef): Promise<boolean> {
    return Promise.resolve(this.#space.leave(this.#id, claim, timeOf(this.#clock)));
  }

  reweigh(claim: Claim): Promise<void> {
    return Promise.resolve(this.#space.reweigh(this.#id, claim, claim.weight));
  }

  beat(roster: Roster): Promise<Pulse> {
    return Promise.resolve(this.#space.beat(this.#id, roster, timeOf(this.#clock)));
  }

  close(): Promise<void> {
    return Promise.resolve(this.#space.close(this.#id));
  }
}
