import type { Traits } from '../../core/engine.js';
import { LINE_TRAITS } from '../../kit/traits.js';

export const queueTraits: Traits = {
  ...LINE_TRAITS,
  wake: 'push',
  token: 'durable',
};

/** PostgreSQL's own session locks: they live and die with a connection, and nobody stands in a line. */
export const advisoryTraits: Traits = {
  ...queueTraits,
  liveness: 'connection',
  order: 'none',
  sharing: 'shared',
  listing: false,
};
