import { createPool } from 'mysql2';
import { afterAll, beforeAll, test } from 'vitest';
import { mysql } from '../../src/engines/mysql/index.js';
import { conformance } from '../../src/testing/index.js';
import { startMariadb } from '../servers/mariadb.js';
import type { Server } from '../servers/server.js';

let server: Server;
const pool = createPool({ host: '127.0.0.1', user: 'root', database: 'test', connectionLimit: 400 });

beforeAll(async () => {
  server = await startMariadb();
  (pool as unknown as { config: { connectionConfig: { port: number } } }).config.connectionConfig.port = server.port;
});

afterAll(async () => {
  pool.end();
  await server.stop();
});

for (const strategy of ['queue', 'row', 'version', 'for-update', 'get-lock'] as const)
  conformance({
    test: test.concurrent,
    engine: `mysql:${strategy}`,
    source: () => mysql(pool, { strategy, connections: 300 }),
  });
