import type { Traits } from '../../core/engine.js';

export const queueTraits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'durable',
  sharing: 'weighted',
  registers: true,
  forgets: true,
  listing: true,
  minTtlMs: 1_000,
};

/** PostgreSQL's own session locks: they live and die with a connection, and nobody stands in a line. */
export const advisoryTraits: Traits = {
  ...queueTraits,
  liveness: 'connection',
  order: 'none',
  sharing: 'shared',
  listing: false,
};
