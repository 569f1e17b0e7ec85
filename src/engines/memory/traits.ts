import type { Traits } from '../../core/engine.js';

export const traits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'clock',
  sharing: 'weighted',
  registers: true,
  forgets: true,
  listing: true,
  minTtlMs: 1_000,
};
