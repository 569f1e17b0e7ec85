import { FILE_PARAMS } from '../../kit/certificates.js';
import type { Scheme, Schemes } from '../../kit/scheme.js';
import { traits } from './traits.js';
import { etcdUrl } from './url.js';

const plain: Scheme = {
  hosts: true,
  params: [],
  strategies: {
    queue: {
      traits,
      check: etcdUrl,
      load: async (url) => (await import('./index.js')).etcdFromUrl(etcdUrl(url)),
    },
  },
};

export const schemes: Schemes = { etcd: plain, etcds: { ...plain, params: FILE_PARAMS } };
