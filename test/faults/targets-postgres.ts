/** PostgreSQL under faults, by strategy. */
import { chmod } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Holdfast } from 'holdfast';
import { Client } from 'pg';
import { clockShim } from '../servers/clock-shim.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import { LOOPBACK } from '../servers/ports.js';
import { sql, startPostgres } from '../servers/postgres.js';
import { oddSettings } from './odd-settings.js';
import type { Target, TargetKind } from './targets.js';
import { GARBAGE, messages, replays, strangeName, STRANGER, type Visit } from './tenant.js';

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
    tenant: (visit) => tenant(server.port, visit),
    oddSettings: oddSettings(
      SETTINGS,
      (name, value) => sql(server.port, `ALTER ROLE worker SET ${name} = ${value}`),
      (name) => sql(server.port, `ALTER ROLE worker RESET ${name}`),
      ['default_transaction_isolation', 'default_transaction_read_only'],
    ),
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

/** What a role's connections begin with. */
const SETTINGS = {
  synchronous_commit: 'off',
  default_transaction_isolation: "'serializable'",
  default_transaction_read_only: 'on',
  timezone: "'Pacific/Kiritimati'",
  datestyle: "'German'",
  bytea_output: "'escape'",
  standard_conforming_strings: 'off',
  search_path: "''",
};

/** To every inbox, rows of names and sessions that nobody has, and claims of nobody in our lines. */
async function tenant(port: number, visit: Visit): Promise<void> {
  const { namespace, random } = visit;
  const listening = await sql<{ channel: string }>(
    port,
    `SELECT DISTINCT inbox AS channel FROM holdfast.holdfast_session WHERE namespace = $1`,
    [namespace],
  );
  const overheard: string[] = [];
  const ear = new Client({ host: LOOPBACK, port, user: 'postgres', database: 'postgres' });
  // A server that dies in the meantime is told by the rejection.
  ear.on('error', () => {});
  await ear.connect();
  try {
    ear.on('notification', ({ payload = '' }) => void overheard.push(payload));
    for (const { channel } of listening) await ear.query(`LISTEN "${channel}"`);
    const notify = async (messagesNow: readonly string[]): Promise<void> => {
      for (const { channel } of listening)
        for (const message of messagesNow) await ear.query('SELECT pg_notify($1, $2)', [channel, message]);
    };
    await notify(messages(visit));
    await notify(replays(visit, overheard));
  } finally {
    await ear.end();
  }
  const values = [namespace, strangeName(random), random.pick(GARBAGE), `${STRANGER} ${random.next()}`];
  await sql(
    port,
    `WITH line AS (INSERT INTO holdfast.holdfast_line VALUES ($1, 'l' || $2, -1, 7, -5, 3, now()) ON CONFLICT DO NOTHING),
       claim AS (INSERT INTO holdfast.holdfast_claim VALUES ($4, $4, $1, 'l' || $2, 1, -9, true, 1, now(), $3, $3))
     INSERT INTO holdfast.holdfast_register VALUES ($1, $2, convert_to($3, 'UTF8'), 5, now(), 0, 0) ON CONFLICT DO NOTHING`,
    values,
  );
  const weight = random.pick(['1', '-9', '2147483647', '9223372036854775807']);
  await sql(
    port,
    `INSERT INTO holdfast.holdfast_claim
       SELECT $3, $3 || ' in line', namespace, line, 1, ${weight}, ${random.pick(['true', 'false'])}, last_token + ${random.int(20)}, now(), $4, $4
       FROM holdfast.holdfast_line WHERE namespace = $1 AND line = 'l' || $2`,
    [namespace, random.pick(visit.names), values[3], values[2]],
  );
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
