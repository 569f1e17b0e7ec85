/** Three servers: sessions go on under another leader, on whichever server takes them. */
import { test } from 'vitest';
import { testCluster } from '../consensus/cluster.js';
import { startZooKeeperEnsemble } from '../../servers/zookeeper.js';
import { urlOf } from './kit.js';

testCluster({
  start: startZooKeeperEnsemble,
  urlOf,
  // An election takes longer here, and so does a server's way back.
  ttl: '24s',
  // They take long: for `npm run test:matrix` only.
  slowTest: test.runIf(process.env['HOLDFAST_MATRIX'] !== undefined),
});
