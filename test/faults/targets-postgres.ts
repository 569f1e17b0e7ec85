/** PostgreSQL under faults, by strategy. */
import { chmod } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Holdfast } from 'holdfast';
import { clockShim } from '../servers/clock-shim.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import { sql, startPostgres } from '../servers/postgres.js';
import type { Target, TargetKind } from './targets.js';

const PASSWORD = 'canary-in-the-coal-mine';

export const POSTGRES_TARGETS: Readonly<Record<string, TargetKind>> = {
  postgres: {
    processes: true,
    start: () => startTarget('queue'),
    short: {
      seconds: 5,
      nemeses: ['stall', 'pause', 'kill', 'hang', 'cut', 'lost-replies', 'client-kill', 'restart'],
    },
  },
  'postgres-advisory': {
    processes: true,
    start: () => startTarget('advisory'),
    // A lock ends with its connection, at once: another may have it before the news has reached whoever held it.
    sparesUnder: { 'client-kill': ['belief'], restart: ['belief'], cut: ['belief'] },
  },
};

async function startTarget(strategy: string): Promise<Target> {
  const clock = await clockShim();
  // The server is not run by us, and has to read where its clock stands.
  if (clock) await chmod(dirname(clock.env['HOLDFAST_CLOCK']!), 0o755);
  const server = await startPostgres({ ...(clock && { env: clock.env }) });
  // Workers have a password, so that it can be seen whether it gets anywhere.
  await sql(server.port, `CREATE ROLE worker LOGIN SUPERUSER PASSWORD '${PASSWORD}'`);
  const proxies = new Map<string, FaultProxy>();
  const urlOf = (port: number): string =>
    `postgres://worker:${PASSWORD}@127.0.0.1:${port}/postgres?strategy=${strategy}`;
  const setup = new Holdfast(urlOf(server.port));
  await setup.ready();
  await setup.close();
  const [version] = await sql<{ server_version: string }>(server.port, 'SHOW server_version');
  return {
    urlFor: async (worker) => {
      const proxy = proxies.get(worker) ?? (await FaultProxy.start(server.port));
      proxies.set(worker, proxy);
      return urlOf(proxy.port);
    },
    ...(strategy === 'queue' && {
      observerUrl: urlOf(server.port),
      // All of them: a single row is half of a line, which no operator could take for the whole.
      deleteSome: async (namespace: string) => {
        for (const table of ['claim', 'line', 'session'])
          await sql(server.port, `DELETE FROM holdfast.holdfast_${table} WHERE namespace = $1`, [namespace]);
      },
    }),
    endConnections: async () => {
      await sql(
        server.port,
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE usename = 'worker' AND random() < 0.5`,
      );
    },
    secrets: [PASSWORD],
    server,
    proxies,
    ...(clock && { clock }),
    leftovers: (namespace) => rowsLeft(server.port, namespace),
    versions: { postgres: version!.server_version },
    [Symbol.asyncDispose]: async () => {
      for (const proxy of proxies.values()) await proxy[Symbol.asyncDispose]();
      await server.stop();
      clock?.[Symbol.dispose]();
    },
  };
}

/** A line that nobody stands in is kept for a while, for its token. */
async function rowsLeft(port: number, namespace: string): Promise<string[]> {
  const rows = await sql<{ left: string }>(
    port,
    `SELECT 'session ' || id AS left FROM holdfast.holdfast_session WHERE namespace = $1
     UNION ALL SELECT 'claim ' || id FROM holdfast.holdfast_claim WHERE namespace = $1
     UNION ALL SELECT 'line ' || line || ' ' || held || '/' || waiting FROM holdfast.holdfast_line
       WHERE namespace = $1 AND (held <> 0 OR waiting <> 0)`,
    [namespace],
  );
  return rows.map(({ left }) => left);
}
