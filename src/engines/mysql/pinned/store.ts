/**
 * Locks that belong to a connection of their own, where the server keeps the queue. How one is taken there, the strategies
 * know: get-lock.ts and for-update.ts.
 *
 *     enter ─▶ a connection out of the pool ─▶ lock ─▶ mint the token, and prove that the lock is still there ─▶ held
 *                                               └ busy: the connection goes back; asks again
 *
 * What can go wrong: a restart of the server frees everything at once, and so does a connection that breaks or is killed.
 * The holder hears of that at once if the network tells it, and after its validity at the latest; the next may have
 * been granted before. Only the fence covers that.
 *
 * A process that dies while it waits stays in the server's queue for up to its patience. It may be granted the lock for the
 * moment that the server needs to see that nobody is there; who only tries at that moment is refused.
 */
import type { Claim, ClaimRef } from '../../../core/engine.js';
import { EngineError } from '../../../core/errors.js';
import type { HeldSlot, Pace, SlotStore, Taken } from '../../../kit/slot-store.js';
import { bytes, type Value } from '../client/port.js';
import type { Settings } from '../client/settings.js';
import type { Pin, Pins } from './pins.js';
import type { StoreSetup } from '../rows/engine.js';
import { firstToken, NOW } from '../tables.js';
import { explained } from '../client/errors.js';

export interface PinnedSetup extends StoreSetup {
  readonly pins: Pins;
}

/** The server's own patience: MySQL counts it in whole seconds. */
export const PATIENCE_MS = 1_000;

/** How a strategy locks on a connection. */
export interface Latch {
  /** What its connections need. */
  readonly settings: Settings;
  /** False: busy, and nothing is on the connection. */
  lock(pin: Pin, claim: Claim, patienceMs: number): Promise<boolean>;
  /** The token, when the lock has been proven after it was minted. Undefined: busy after all, and nothing is on the connection. */
  mint(pin: Pin, claim: Claim, patienceMs: number): Promise<bigint | undefined>;
  prove(pin: Pin, name: string): Promise<boolean | undefined>;
  unlock(pin: Pin, name: string): Promise<void>;
  /**
   * Makes another connection a reader's, beside the writer's, which is unlocked after that: no other writer may come in
   * between. Absent where there are no readers.
   */
  stay?(pin: Pin, name: string): Promise<void>;
}

interface Holding {
  pin: Pin | undefined;
  token: bigint | undefined;
  /** A downgrade under way, and whether it is done. */
  lightening: Promise<void> | undefined;
  light: boolean;
  dropped: boolean;
}

export class PinnedStore implements SlotStore {
  readonly pace: Pace = { firstMs: 5, mostMs: 50, patienceMs: PATIENCE_MS };
  /**
   * Each claim has a connection of its own. A take that is given up is not cut off, but ends by itself, within the server's
   * patience: the server does not see that a connection breaks whose statement waits. It would grant it the lock, and find
   * out only then, and a try of ours at that moment would be refused.
   */
  readonly unordered = true;
  readonly #setup: PinnedSetup;
  readonly #latch: Latch;
  /** By claim, also of those that only ask yet. */
  readonly #holdings = new Map<string, Holding>();

  readonly lighten?: (claim: Claim) => Promise<void>;

  constructor(setup: PinnedSetup, latch: Latch) {
    this.#setup = setup;
    this.#latch = latch;
    if (latch.stay) this.lighten = (claim) => this.#lighten(claim);
  }

  async take(claim: Claim, patienceMs: number): Promise<Taken> {
    this.#setup.sweeper.used();
    const known = this.#holdings.get(claim.id);
    if (known?.token !== undefined) return { token: known.token };
    const holding: Holding = {
      pin: undefined,
      token: undefined,
      lightening: undefined,
      light: false,
      dropped: false,
    };
    this.#holdings.set(claim.id, holding);
    try {
      return await this.#take(claim, patienceMs, holding);
    } catch (error) {
      this.#abandon(claim.id, holding);
      throw explained(error);
    }
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const proofs = await Promise.all(
      slots.map(async ({ id, line }) => {
        const pin = this.#holdings.get(id)?.pin;
        return { id, proven: pin ? await this.#latch.prove(pin, line.name) : false };
      }),
    );
    if (proofs.every(({ proven }) => proven === undefined))
      throw new EngineError('The database did not answer in time.');
    // A server that answers on one connection and not on another: nothing can be known of the lock on that.
    const lost = proofs.filter(({ proven }) => proven !== true).map(({ id }) => id);
    for (const id of lost) {
      const holding = this.#holdings.get(id);
      if (holding) this.#abandon(id, holding);
    }
    return lost;
  }

  async drop({ id, line: { name } }: ClaimRef): Promise<boolean> {
    const holding = this.#holdings.get(id);
    if (!holding) return false;
    // At once: whoever else drops it must find nothing.
    this.#holdings.delete(id);
    await holding.lightening?.catch(() => {});
    const { pin, token } = holding;
    if (!pin || token === undefined) {
      this.#abandon(id, holding);
      return false;
    }
    holding.dropped = true;
    if (pin.over) return false;
    try {
      await this.#latch.unlock(pin, name);
      pin.giveBack(this.#setup.withinMs);
    } catch {
      pin.destroy();
    }
    return true;
  }

  async close(): Promise<void> {
    for (const [id, holding] of this.#holdings) this.#abandon(id, holding);
  }

  async #take(claim: Claim, patienceMs: number, holding: Holding): Promise<Taken> {
    const pin = await this.#pin((detail) => this.#broke(claim.id, holding, detail));
    holding.pin = pin;
    if (holding.dropped) {
      pin.destroy();
      return BUSY;
    }
    if (!(await this.#latch.lock(pin, claim, patienceMs))) return this.#giveUp(claim, holding, pin);
    const token = await this.#latch.mint(pin, claim, patienceMs);
    if (token === undefined) return this.#giveUp(claim, holding, pin);
    if (pin.over) throw new EngineError('The connection was lost before the lock was granted.');
    holding.token = token;
    return { token };
  }

  #pin(onBroken: (detail: string) => void): Promise<Pin> {
    const { pins, ttlMs, withinMs } = this.#setup;
    const settings = {
      wait_timeout: Math.ceil(ttlMs / 1_000),
      innodb_lock_wait_timeout: PATIENCE_MS / 1_000,
      ...this.#latch.settings,
    };
    return pins.pin(settings, withinMs, onBroken);
  }

  #giveUp({ id }: ClaimRef, holding: Holding, pin: Pin): Taken {
    if (this.#holdings.get(id) === holding) this.#holdings.delete(id);
    pin.giveBack(this.#setup.withinMs);
    return BUSY;
  }

  #broke(id: string, holding: Holding, detail: string): void {
    holding.dropped = true;
    if (this.#holdings.get(id) === holding) this.#holdings.delete(id);
    if (holding.token !== undefined) this.#setup.lost(id, { reason: 'connection', detail });
  }

  async #lighten(claim: Claim): Promise<void> {
    const holding = this.#holdings.get(claim.id);
    if (!holding?.pin || holding.token === undefined || holding.light) return;
    holding.lightening ??= this.#moveOver(claim, holding, holding.pin).finally(() => (holding.lightening = undefined));
    await holding.lightening;
  }

  /** A transaction can't give back a part of what it has locked: so a reader's is begun beside the writer's, which ends then. */
  async #moveOver(claim: Claim, holding: Holding, writer: Pin): Promise<void> {
    const { name } = claim.line;
    const reader = await this.#reader(claim, holding);
    try {
      if (holding.dropped) throw new EngineError('The lock was lost before it was a reader’s.');
      holding.pin = reader;
      // Its answer proves that the writer was there until the reader was.
      await this.#latch.unlock(writer, name);
      holding.light = true;
      writer.giveBack(this.#setup.withinMs);
    } catch (error) {
      writer.destroy();
      reader.destroy();
      if (!holding.dropped) this.#broke(claim.id, holding, 'the server did not answer');
      throw explained(error);
    }
  }

  /** If it fails nothing has changed, and it is tried again. */
  async #reader(claim: Claim, holding: Holding): Promise<Pin> {
    const second: { pin?: Pin } = {};
    const reader = await this.#pin((detail) => {
      // Until it has become the holder's, the lock does not depend on it.
      if (holding.pin === second.pin) this.#broke(claim.id, holding, detail);
    });
    second.pin = reader;
    try {
      await this.#latch.stay!(reader, claim.line.name);
      if (reader.over) throw new EngineError('The connection was lost before the lock was on it.');
      return reader;
    } catch (error) {
      reader.destroy();
      throw explained(error);
    }
  }

  #abandon(id: string, holding: Holding): void {
    holding.dropped = true;
    if (this.#holdings.get(id) === holding) this.#holdings.delete(id);
    holding.pin?.destroy();
  }
}

const BUSY: Taken = { freeInMs: undefined };

/** A token above all that this name has had. Bound: the key, the namespace. */
export function mintSql(p: string): string {
  return `INSERT INTO ${p}mint (namespace, name, owner, token, until)
    VALUES (?, ?, '', LAST_INSERT_ID(${firstToken(p)}), ${NOW})
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, ${NOW})), until = ${NOW}`;
}

export function mintValues({ namespace }: StoreSetup, name: string): readonly Value[] {
  return [namespace, bytes(name), namespace];
}
