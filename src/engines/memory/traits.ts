import type { Traits } from '../../core/engine.js';
import { LINE_TRAITS } from '../../kit/traits.js';

export const traits: Traits = {
  ...LINE_TRAITS,
  wake: 'push',
  token: 'clock',
};
