import { Pool } from 'pg';
import { afterAll, beforeAll, test } from 'vitest';
import { postgres } from '../../src/engines/postgres/index.js';
import { conformance } from '../../src/conformance/index.js';
import { startPostgres } from '../servers/postgres.js';
import type { Server } from '../servers/server.js';

let server: Server;
const pool = new Pool({ host: '127.0.0.1', user: 'postgres', database: 'postgres', max: 10 });
// Its connections end with the server.
pool.on('error', () => {});

beforeAll(async () => {
  server = await startPostgres();
  pool.options.port = server.port;
});

afterAll(async () => {
  await pool.end();
  await server.stop();
});

conformance({ test: test.concurrent, engine: 'postgres', source: () => postgres(pool) });
conformance({
  test: test.concurrent,
  engine: 'postgres-advisory',
  source: () => postgres(pool, { strategy: 'advisory' }),
});
