import type { Traits } from '../../core/engine.js';

/** What Redis can do, however a lock lies in it. */
const common = { wake: 'push', token: 'clock', registers: true, forgets: true, minTtlMs: 500 } as const;

export const queueTraits: Traits = {
  ...common,
  liveness: 'session',
  order: 'fifo',
  sharing: 'weighted',
  listing: true,
};

/** One key per lock: whoever sets it holds it. There is no line, so nothing to list, and nothing to share. */
const keyTraits: Traits = { ...common, liveness: 'key', order: 'none', sharing: 'exclusive', listing: false };

/** A lock of somebody else's goes without a message. */
export const plainTraits: Traits = { ...keyTraits, wake: 'poll' };

export const hashTraits: Traits = keyTraits;

export const redlockTraits: Traits = { ...keyTraits, registers: false, forgets: false };
