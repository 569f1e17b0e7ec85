/** PgBouncer before a PostgreSQL, in the mode that shares connections between transactions. Everybody is let in. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LOOPBACK } from './ports.js';
import { asNobodyInParticular, sql } from './postgres.js';
import { provide } from './provide.js';
import { type Server, startServer } from './server.js';

/** @param settings more lines of its configuration. */
export async function startPgBouncer(target: number, settings = ''): Promise<Server> {
  const program = provide('pgbouncer', ['pgbouncer']);
  return startServer({
    name: 'pgbouncer',
    program: asNobodyInParticular(program),
    args: ({ data }) => [join(data, 'pgbouncer.ini')],
    prepare: ({ port, data }) =>
      writeFile(
        join(data, 'pgbouncer.ini'),
        `[databases]
* = host=${LOOPBACK} port=${target} user=postgres
[pgbouncer]
listen_addr = ${LOOPBACK}
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
${settings}
`,
      ),
    ready: async ({ port }) => (await sql(port, 'SELECT 1')).length === 1,
  });
}
