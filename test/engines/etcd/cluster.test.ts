/** Three members: leases go on under another leader, which grants each of them its whole ttl again. */
import { test } from 'vitest';
import { testCluster } from '../consensus/cluster.js';
import { startEtcdCluster } from '../../servers/etcd.js';
import { urlOf } from './kit.js';

testCluster({ start: startEtcdCluster, urlOf, ttl: '15s', slowTest: test });
