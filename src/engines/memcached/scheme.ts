import type { Schemes } from '../../kit/scheme.js';
import { realmsOf } from './keys.js';
import { traits } from './traits.js';
import { memcachedUrl } from './url.js';

export const schemes: Schemes = {
  memcached: {
    hosts: true,
    params: [],
    strategies: {
      slots: {
        traits,
        check: memcachedUrl,
        realm: (url) => realmsOf(memcachedUrl(url)),
        load: async (url) => (await import('./index.js')).memcachedFromUrl(memcachedUrl(url)),
      },
    },
  },
};
