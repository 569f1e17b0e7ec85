import type { Clock } from './clock.js';

/**
 * How long to wait before try number `attempt` (from 0): doubling from `firstMs` to at most `mostMs`, with half of it
 * random, so that a fleet that lost its server together does not come back together.
 */
export function backoff(clock: Clock, attempt: number, firstMs: number, mostMs: number): number {
  const ceiling = Math.min(mostMs, firstMs * 2 ** Math.min(attempt, 30));
  return ceiling * (0.5 + clock.random() / 2);
}
