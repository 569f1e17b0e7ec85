import { FILE_PARAMS } from '../../kit/certificates.js';
import type { Scheme, Schemes } from '../../kit/scheme.js';
import { traits } from './traits.js';
import { zookeeperUrl } from './url.js';

const plain: Scheme = {
  hosts: true,
  params: [],
  strategies: {
    queue: {
      traits,
      check: zookeeperUrl,
      load: async (url) => (await import('./index.js')).zookeeperFromUrl(zookeeperUrl(url)),
    },
  },
};

export const schemes: Schemes = { zookeeper: plain, zookeepers: { ...plain, params: FILE_PARAMS } };
