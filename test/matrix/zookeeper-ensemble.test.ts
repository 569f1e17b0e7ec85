/** The conformance suite on three servers. It takes a while, so it runs for `npm run test:matrix` only. */
import { afterAll, test } from 'vitest';
import { zookeeper } from '../../src/engines/zookeeper/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startZooKeeperEnsemble } from '../servers/zookeeper.js';
import { urlOf } from '../engines/zookeeper/kit.js';

const ensemble = await startZooKeeperEnsemble();
afterAll(() => ensemble[Symbol.asyncDispose]());
conformance({ test: test.concurrent, engine: 'zookeeper × 3', source: () => zookeeper(urlOf(...ensemble.members)) });
