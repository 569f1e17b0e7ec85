import { afterAll, beforeAll, test } from 'vitest';
import { memcached } from '../../src/engines/memcached/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startMemcached } from '../servers/memcached.js';
import type { Server } from '../servers/server.js';

let servers: readonly Server[] = [];

beforeAll(async () => {
  servers = await Promise.all([startMemcached(), startMemcached()]);
});

afterAll(async () => {
  for (const server of servers) await server.stop();
});

const url = (): string => `memcached://${servers.map(({ port }) => `127.0.0.1:${port}`).join(',') || 'localhost'}`;

conformance({ test: test.concurrent, engine: 'memcached', source: () => memcached(url()) });
