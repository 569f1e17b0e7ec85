import type { Traits } from '../../core/engine.js';

export const traits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'consensus',
  sharing: 'weighted',
  registers: true,
  // Nodes with a time to live are switched off by default on its servers.
  forgets: false,
  listing: true,
  // Servers make no session shorter than two of their ticks: 4 s by default, and the shortest tick in use is a second.
  minTtlMs: 2_000,
};
