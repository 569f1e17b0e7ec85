import { createPool, type Pool } from 'mysql2';
import { afterAll, beforeAll, test } from 'vitest';
import { mysql } from '../../src/engines/mysql/index.js';
import { conformance } from '../../src/conformance/index.js';
import { sql, startMariadb } from '../servers/mariadb.js';
import type { Server } from '../servers/server.js';

let server: Server;
const poolOf = (user: string, connectionLimit: number): Pool =>
  createPool({ host: '127.0.0.1', user, database: 'test', connectionLimit });
const pool = poolOf('root', 380);
/** Of a user who may not create routines. */
const plain = poolOf('plain', 50);

beforeAll(async () => {
  server = await startMariadb();
  for (const { config } of [pool, plain] as unknown as { config: { connectionConfig: { port: number } } }[])
    config.connectionConfig.port = server.port;
  await sql(server.port, 'CREATE USER plain; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO plain');
});

afterAll(async () => {
  pool.end();
  plain.end();
  await server.stop();
});

for (const strategy of ['queue', 'row', 'version', 'for-update', 'get-lock'] as const)
  conformance({
    test: test.concurrent,
    engine: `mysql:${strategy}`,
    source: () => mysql(pool, { strategy, connections: 300 }),
  });

conformance({
  test: test.concurrent,
  engine: 'mysql:queue without routines',
  source: () => mysql(plain),
});
