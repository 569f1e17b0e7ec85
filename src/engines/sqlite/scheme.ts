import type { Schemes } from '../../kit/scheme.js';
import { traits } from './traits.js';

export const schemes: Schemes = {
  sqlite: {
    params: [],
    strategies: { queue: { traits, load: async ({ path }) => (await import('./index.js')).sqlite(path) } },
  },
};
