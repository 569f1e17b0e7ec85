import type { Traits } from '../../core/engine.js';

export const traits: Traits = {
  liveness: 'key',
  order: 'none',
  wake: 'poll',
  token: 'clock',
  sharing: 'exclusive',
  registers: false,
  forgets: false,
  listing: false,
  // It counts whole seconds, and the last one may be short.
  minTtlMs: 3_000,
};
