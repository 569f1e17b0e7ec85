import type { Traits } from '../../core/engine.js';
import type { Scheme, Schemes, Strategy } from '../../kit/scheme.js';
import { advisoryTraits, queueTraits } from './traits.js';
import { PARAMS, postgresUrl } from './url.js';

function strategy(name: string, traits: Traits): Strategy {
  return {
    traits,
    check: postgresUrl,
    load: async (url) => (await import('./index.js')).postgresFromUrl(postgresUrl(url), name),
    schema: async (url) => (await import('./index.js')).postgresSchema(postgresUrl(url)),
  };
}

const postgres: Scheme = {
  hosts: true,
  params: PARAMS,
  strategies: { queue: strategy('queue', queueTraits), advisory: strategy('advisory', advisoryTraits) },
};

export const schemes: Schemes = { postgres, postgresql: postgres };
