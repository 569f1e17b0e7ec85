import { plainAndTls, type Schemes } from '../../kit/scheme.js';
import { traits } from './traits.js';
import { etcdUrl } from './url.js';

export const schemes: Schemes = plainAndTls('etcd', {
  traits,
  check: etcdUrl,
  load: async (url) => (await import('./index.js')).etcdFromUrl(etcdUrl(url)),
});
