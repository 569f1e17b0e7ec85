import { Redis } from 'ioredis';
import { afterAll, beforeAll, test } from 'vitest';
import { redis } from '../../src/engines/redis/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startRedis } from '../servers/redis.js';
import type { Server } from '../servers/server.js';

let server: Server;
const client = new Redis({ lazyConnect: true });

beforeAll(async () => {
  server = await startRedis();
  client.options.port = server.port;
});

afterAll(async () => {
  client.disconnect();
  await server.stop();
});

conformance({ test: test.concurrent, engine: 'redis', source: () => redis(client, { epochGuard: false }) });
