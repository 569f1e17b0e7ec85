import type { Traits } from '../../core/engine.js';
import { LINE_TRAITS } from '../../kit/traits.js';

export const traits: Traits = {
  ...LINE_TRAITS,
  wake: 'push',
  token: 'consensus',
  // Nodes with a time to live are switched off by default on its servers.
  forgets: false,
  // Servers make no session shorter than two of their ticks: 4 s by default, and the shortest tick in use is a second.
  minTtlMs: 2_000,
};
