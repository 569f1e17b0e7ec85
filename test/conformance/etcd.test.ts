import { afterAll, beforeAll, test } from 'vitest';
import { etcd } from '../../src/engines/etcd/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startEtcd } from '../servers/etcd.js';
import type { Server } from '../servers/server.js';

let server: Server | undefined;

beforeAll(async () => {
  server = await startEtcd();
});

afterAll(() => server?.stop());

conformance({ test: test.concurrent, engine: 'etcd', source: () => etcd([`127.0.0.1:${server?.port ?? 2_379}`]) });
