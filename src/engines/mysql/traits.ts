import type { Traits } from '../../core/engine.js';

const queue: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'poll',
  token: 'durable',
  sharing: 'weighted',
  registers: true,
  forgets: true,
  listing: true,
  minTtlMs: 1_000,
};

/** One row per lock: there is no line, so nothing to list, and nothing to share. */
const row: Traits = { ...queue, liveness: 'key', order: 'none', sharing: 'exclusive', listing: false };

/** The server keeps a queue of its own, in no order that it would promise. */
const pinned: Traits = { ...row, liveness: 'connection' };

const forUpdate: Traits = { ...pinned, sharing: 'shared' };

/** By name, the default first. */
export const STRATEGIES = { queue, row, version: row, 'for-update': forUpdate, 'get-lock': pinned } as const;

export type MysqlStrategy = keyof typeof STRATEGIES;
