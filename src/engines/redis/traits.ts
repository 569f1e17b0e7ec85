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
  minTtlMs: 500,
};

/** One key per lock: whoever sets it holds it. There is no line, so nothing to list, and nothing to share. */
const keyTraits: Traits = { ...traits, liveness: 'key', order: 'none', sharing: 'exclusive', listing: false };

/** A lock of somebody else's goes without a message. */
export const plainTraits: Traits = { ...keyTraits, wake: 'poll' };

export const hashTraits: Traits = keyTraits;

export const redlockTraits: Traits = { ...keyTraits, registers: false, forgets: false };
