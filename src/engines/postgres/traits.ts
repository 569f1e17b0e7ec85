import type { Traits } from '../../core/engine.js';

export const queueTraits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'durable',
  sharing: 'weighted',
  registers: true,
  listing: true,
  minTtlMs: 1_000,
};
