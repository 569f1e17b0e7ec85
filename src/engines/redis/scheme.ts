import type { Traits } from '../../core/engine.js';
import type { Scheme, Schemes, Strategy } from '../../kit/scheme.js';
import { clusterRealm } from './queue/keys.js';
import { hashTraits, plainTraits, queueTraits, redlockTraits } from './traits.js';
import { redisUrl } from './url.js';

function strategy(traits: Traits): Strategy {
  return {
    traits,
    check: redisUrl,
    load: async (url) => (await import('./index.js')).redisFromUrl(redisUrl(url)),
  };
}

const single: Scheme = {
  hosts: true,
  params: ['epochGuard'],
  strategies: { queue: strategy(queueTraits), plain: strategy(plainTraits), hash: strategy(hashTraits) },
};
const sentinel: Scheme = { ...single, params: [...single.params, 'sentinelPassword'] };
const cluster: Scheme = {
  ...single,
  strategies: { ...single.strategies, queue: { ...strategy(queueTraits), realm: () => clusterRealm } },
};

export const schemes: Schemes = {
  redis: single,
  rediss: single,
  'redis+sentinel': sentinel,
  'rediss+sentinel': sentinel,
  'redis+cluster': cluster,
  'rediss+cluster': cluster,
  redlock: { ...single, strategies: { ballot: strategy(redlockTraits) } },
};
