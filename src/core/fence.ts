/**
 * The rule of every fence. It keeps the highest token that a reader has shown and the highest that a writer has shown.
 * A reader must be newer than every writer; a writer must not be older than one, and must be newer than every reader.
 * Both only grow, so whoever is not stale now was not stale when it showed its token.
 */
import type { Fence } from './engine.js';

export function isStale({ mode, token }: Fence, maxRead: bigint, maxWrite: bigint): boolean {
  return mode === 'read' ? token <= maxWrite : token < maxWrite || token <= maxRead;
}

/** Of all that were shown: what a stale one is told. */
export function newest(maxRead: bigint, maxWrite: bigint): bigint {
  return maxRead > maxWrite ? maxRead : maxWrite;
}

/**
 * How a lease tells a fence what it may show. A registered symbol, not `instanceof`: a fence must know the leases of
 * another copy of this package too. Throws for what can't be fenced.
 */
export const PRESENT: unique symbol = Symbol.for('holdfast.present');

/** What a lease shows, and whose token that is: tokens of different engines can't be compared. */
export interface Presented extends Fence {
  readonly origin: unknown;
}

export interface Presentable {
  [PRESENT](): Presented;
}
