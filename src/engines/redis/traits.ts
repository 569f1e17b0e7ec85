import type { Traits } from '../../core/engine.js';

export const traits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'clock',
  sharing: 'weighted',
  registers: true,
  listing: true,
  minTtlMs: 500,
};
