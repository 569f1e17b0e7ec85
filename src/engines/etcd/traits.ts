import type { Traits } from '../../core/engine.js';

export const traits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'consensus',
  sharing: 'weighted',
  registers: true,
  forgets: true,
  listing: true,
  // With its default settings (elections of a second) etcd makes no lease shorter than this.
  minTtlMs: 2_000,
};
