import { createPool } from 'mysql2';
import { afterAll, beforeAll, test } from 'vitest';
import { mysql } from '../../src/engines/mysql/index.js';
import { conformance } from '../../src/testing/index.js';
import { startMariadb } from '../servers/mariadb.js';
import type { Server } from '../servers/server.js';

let server: Server;
const pool = createPool({ host: '127.0.0.1', user: 'root', database: 'test', connectionLimit: 20 });

beforeAll(async () => {
  server = await startMariadb();
  (pool as unknown as { config: { connectionConfig: { port: number } } }).config.connectionConfig.port = server.port;
});

afterAll(async () => {
  pool.end();
  await server.stop();
});

conformance({ test: test.concurrent, engine: 'mysql', source: () => mysql(pool) });
