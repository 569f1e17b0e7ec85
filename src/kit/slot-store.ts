/** What is needed of a system that has one slot per name; the session on it is in slot-session.ts. */
import type { Claim, ClaimRef, Guard, LineRef } from '../core/engine.js';

export interface SlotStore {
  /**
   * Takes the slot, for one ttl, if it is free. Asked again with a claim that has it: renews it, and answers its token
   * again, or a larger one. Only a claim that weighs ALL excludes everybody; others come only where the engine can share.
   * @param patienceMs how long the answer may wait, where the system keeps a queue itself.
   */
  take(claim: Claim, patienceMs: number): Promise<Taken>;
  /** Renews for one ttl. Returns the ids of those that are no longer ours. A rejection means unknown. */
  keep(slots: readonly HeldSlot[]): Promise<readonly string[]>;
  /** Frees what this claim took, and nothing else. False: it had nothing. Also asked about claims that never took. */
  drop(claim: ClaimRef): Promise<boolean>;
  /** Exclusive → shared, without a moment in between. Absent where the engine can't share. */
  readonly lighten?: (claim: Claim) => Promise<void>;
  /** Calls `freed` when the slot may be free. A hint: it may come too often, and it may be lost. */
  readonly watch?: (line: LineRef, freed: () => void) => Promise<SlotWatch>;
  readonly pace: Pace;
  /**
   * Whether calls may overtake each other, because they go over several connections or wait for one. Then a claim's drop is
   * sent when its take is over, and a claim is asked about once at a time. Default: a call is carried out after those that
   * were made before it, and the session waits for none.
   */
  readonly unordered?: boolean;
  close(): Promise<void>;
}

export type Taken =
  | { readonly token: bigint }
  /** Busy. When it is free at the latest if nobody renews it, where the system tells. */
  | {
      readonly token?: undefined;
      readonly freeInMs: number | undefined;
      /** Where nobody has it, and only this is in the way. */
      readonly guard?: Guard | undefined;
    };

export interface HeldSlot extends ClaimRef {
  readonly token: bigint;
}

export interface SlotWatch {
  close(): Promise<void>;
}

/** How often to ask for a slot that is busy: after `firstMs`, then more and more seldom, at least every `mostMs`. */
export interface Pace {
  readonly firstMs: number;
  readonly mostMs: number;
  /** How long the system itself may let us wait. Default: it answers at once. */
  readonly patienceMs?: number;
}
