import { Redis } from 'ioredis';
import { afterAll, beforeAll, test } from 'vitest';
import { redis, redlock } from '../../src/engines/redis/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startRedis } from '../servers/redis.js';
import type { Server } from '../servers/server.js';

const NODES = 3;

let servers: readonly Server[];
const clients = Array.from({ length: NODES }, () => new Redis({ lazyConnect: true }));

beforeAll(async () => {
  servers = await Promise.all(clients.map(() => startRedis()));
  for (const [at, { port }] of servers.entries()) clients[at]!.options.port = port;
});

afterAll(async () => {
  for (const client of clients) client.disconnect();
  for (const server of servers) await server.stop();
});

for (const strategy of ['plain', 'hash'] as const)
  conformance({ test: test.concurrent, engine: `redis:${strategy}`, source: () => redis(clients[0]!, { strategy }) });

conformance({ test: test.concurrent, engine: 'redlock', source: () => redlock(clients, { epochGuard: false }) });
