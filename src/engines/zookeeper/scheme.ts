import { plainAndTls, type Schemes } from '../../kit/scheme.js';
import { traits } from './traits.js';
import { zookeeperUrl } from './url.js';

export const schemes: Schemes = plainAndTls('zookeeper', {
  traits,
  check: zookeeperUrl,
  load: async (url) => (await import('./index.js')).zookeeperFromUrl(zookeeperUrl(url)),
});
