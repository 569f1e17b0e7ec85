import type { Traits } from '../core/engine.js';

/** What an engine with a line of its own can do, if nothing is in its way: an engine's own traits say what differs. */
export const LINE_TRAITS = {
  liveness: 'session',
  order: 'fifo',
  sharing: 'weighted',
  registers: true,
  forgets: true,
  listing: true,
  minTtlMs: 1_000,
} as const satisfies Partial<Traits>;
