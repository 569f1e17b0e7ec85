/** The conformance suite on three members. It takes a while, so it runs for `npm run test:matrix` only. */
import { afterAll, test } from 'vitest';
import { etcd } from '../../src/engines/etcd/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startEtcdCluster } from '../servers/etcd.js';
import { urlOf } from '../engines/etcd/kit.js';

const cluster = await startEtcdCluster();
afterAll(() => cluster[Symbol.asyncDispose]());
conformance({ test: test.concurrent, engine: 'etcd × 3', source: () => etcd(urlOf(...cluster.members)) });
