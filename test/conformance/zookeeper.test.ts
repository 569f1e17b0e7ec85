import { afterAll, beforeAll, test } from 'vitest';
import { zookeeper } from '../../src/engines/zookeeper/index.js';
import { conformance } from '../../src/conformance/index.js';
import type { Server } from '../servers/server.js';
import { startZooKeeper } from '../servers/zookeeper.js';

let server: Server | undefined;

beforeAll(async () => {
  server = await startZooKeeper();
});

afterAll(() => server?.stop());

const source = () => zookeeper([`127.0.0.1:${server?.port ?? 2_181}`]);

conformance({ test: test.concurrent, engine: 'zookeeper', source });
