import type { Traits } from '../../core/engine.js';

export const queueTraits: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'poll',
  token: 'durable',
  sharing: 'weighted',
  registers: true,
  listing: true,
  minTtlMs: 1_000,
};

export const STRATEGIES = { queue: queueTraits } as const satisfies Readonly<Record<string, Traits>>;

export type MysqlStrategy = keyof typeof STRATEGIES;
