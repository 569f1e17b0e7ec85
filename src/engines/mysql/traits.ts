import type { Traits } from '../../core/engine.js';
import { LINE_TRAITS } from '../../kit/traits.js';

const queue: Traits = {
  ...LINE_TRAITS,
  wake: 'poll',
  token: 'durable',
};

/** One row per lock: there is no line, so nothing to list, and nothing to share. */
const row: Traits = { ...queue, liveness: 'key', order: 'none', sharing: 'exclusive', listing: false };

/** The server keeps a queue of its own, in no order that it would promise. */
const pinned: Traits = { ...row, liveness: 'connection' };

const forUpdate: Traits = { ...pinned, sharing: 'shared' };

/** By name, the default first. */
export const STRATEGIES = { queue, row, version: row, 'for-update': forUpdate, 'get-lock': pinned } as const;

export type MysqlStrategy = keyof typeof STRATEGIES;
