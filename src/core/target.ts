import type { LineRef } from './engine.js';
import type { Turn } from './turn.js';
import type { Patience, Waiter } from './waiter.js';

/** What a lock object asks for. */
export interface Target {
  readonly ref: LineRef;
  readonly key: string;
  readonly capacity: number;
  /** See Claim. Default: false. */
  readonly rw?: boolean | undefined;
  /** False for semaphores and elections: each acquire stands in the engine's line itself. */
  readonly cohort: boolean;
  /** False for elections and once: never granted to code that is inside already. */
  readonly reentrant: boolean;
}

/** What one acquire of it asks for. */
export interface Asking {
  readonly weight: number;
  readonly patience: Patience;
  readonly label?: string | undefined;
  readonly value?: string | undefined;
  /** The task of a run that is about to begin; see Frame. */
  readonly task?: number | undefined;
  /** The turn to be inside of, where the caller says so by hand. */
  readonly within?: Turn | undefined;
  /** Is handed what waits, for whoever may have to end that. */
  readonly began?: ((waiter: Waiter) => void) | undefined;
}

export function lineKey(ref: LineRef): string {
  return `${ref.kind}:${ref.name}`;
}
