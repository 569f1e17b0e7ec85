import type { Traits } from '../../core/engine.js';
import { LINE_TRAITS } from '../../kit/traits.js';

export const traits: Traits = {
  ...LINE_TRAITS,
  wake: 'push',
  token: 'consensus',
  // With its default settings (elections of a second) etcd makes no lease shorter than this.
  minTtlMs: 2_000,
};
