/**
 * The takes and drops of a session on slots, so that none of them gets lost: a drop comes after the take that it takes back,
 * and one that nobody has answered is asked for again.
 */
import type { Clock } from '../core/clock.js';
import type { Deadlines } from '../core/deadlines.js';
import type { Claim, ClaimRef } from '../core/engine.js';
import type { SlotStore, Taken } from './slot-store.js';

export interface SlotCallsSetup {
  readonly store: SlotStore;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly ttlMs: number;
}

export class SlotCalls {
  readonly #setup: SlotCallsSetup;
  /** Under way, by claim, where calls may overtake each other. */
  readonly #takes = new Map<string, Promise<Taken>>();
  readonly #drops = new Map<string, Promise<boolean>>();
  /** Nobody said that they were dropped; by when they have run out. */
  readonly #undropped = new Map<string, { readonly claim: ClaimRef; readonly until: number }>();

  constructor(setup: SlotCallsSetup) {
    this.#setup = setup;
  }

  /** Where calls may overtake each other, a second question about the same claim gets the answer to the first. */
  take(claim: Claim, patienceMs: number): Promise<Taken> {
    const { store } = this.#setup;
    if (!store.unordered) return store.take(claim, patienceMs);
    const under = this.#takes.get(claim.id);
    if (under) return under;
    const taking = store.take(claim, patienceMs).finally(() => this.#takes.delete(claim.id));
    this.#takes.set(claim.id, taking);
    return taking;
  }

  /**
   * One that overtook its take would find nothing yet. A try of ours would then be refused by what nobody wants any more,
   * and after a close nobody would be left to drop it. There is one at a time for a claim: both a leave and the late answer of
   * the take ask for it.
   */
  drop(claim: ClaimRef): Promise<boolean> {
    const { store } = this.#setup;
    if (!store.unordered) return store.drop(claim);
    const under = this.#drops.get(claim.id);
    if (under) return under;
    const drop = (): Promise<boolean> => store.drop(claim);
    const taking = this.#takes.get(claim.id);
    const dropping = (taking ? taking.then(drop, drop) : drop()).finally(() => this.#drops.delete(claim.id));
    this.#drops.set(claim.id, dropping);
    return dropping;
  }

  /** Over when a drop has been answered. One that was not answered in time is left to `dropAgain`. */
  async over(claim: ClaimRef, dropped: Promise<unknown>): Promise<void> {
    const { clock, deadlines, ttlMs } = this.#setup;
    try {
      await deadlines.race(dropped, () => new Error('no answer'));
    } catch {
      this.#undropped.set(claim.id, { claim, until: clock.now() + ttlMs });
    }
  }

  /** With every beat: who waits for it elsewhere should not have to wait for its end. */
  dropAgain(): void {
    for (const [id, { claim, until }] of this.#undropped) {
      if (until <= this.#setup.clock.now()) this.#undropped.delete(id);
      else
        this.drop(claim).then(
          () => this.#undropped.delete(id),
          () => {
            // It runs out by itself.
          },
        );
    }
  }

  /** For the last time. */
  async dropAll(claims: readonly ClaimRef[]): Promise<void> {
    const unanswered = Array.from(this.#undropped.values(), ({ claim }) => claim);
    await Promise.allSettled([...claims, ...unanswered].map((claim) => this.drop(claim)));
  }
}
