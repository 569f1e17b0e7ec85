import type { Traits } from '../../core/engine.js';
import type { Scheme, Schemes, Strategy } from '../../kit/scheme.js';
import { STRATEGIES } from './traits.js';
import { mysqlUrl, URL_PARAMS } from './url.js';

function strategy(traits: Traits): Strategy {
  return {
    traits,
    check: mysqlUrl,
    load: async (url) => (await import('./index.js')).mysqlFromUrl(mysqlUrl(url)),
    schema: async (url) => (await import('./index.js')).mysqlSchema(mysqlUrl(url)),
  };
}

const mysql: Scheme = {
  hosts: true,
  params: URL_PARAMS,
  strategies: Object.fromEntries(Object.entries(STRATEGIES).map(([name, traits]) => [name, strategy(traits)])),
};

export const schemes: Schemes = { mysql, mariadb: mysql };
