/** MariaDB under faults, with each of its strategies. */
import { type ClockShim, clockShim } from '../servers/clock-shim.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import { sql, startMariadb } from '../servers/mariadb.js';
import type { Server } from '../servers/server.js';
import { oddSettings } from './odd-settings.js';
import type { Target, TargetKind } from './targets.js';
import { GARBAGE, strangeName, STRANGER, type Visit } from './tenant.js';

const PASSWORD = 'canary-in-the-coal-mine';

/**
 * A connection that ends takes its lock with it. The server may hand it on some milliseconds before the holder hears of
 * that: docs/engines/mysql.md.
 */
const CONNECTION_ENDS = { restart: ['belief'], 'client-kill': ['belief'], cut: ['belief'] } as const;
const SHORT = { seconds: 5, nemeses: ['stall', 'pause', 'kill', 'hang', 'lost-replies', 'client-kill', 'restart'] };

export const MYSQL_TARGETS: Readonly<Record<string, TargetKind>> = {
  mysql: { processes: true, start: () => startTarget('queue'), short: SHORT },
  'mysql-statements': { processes: true, start: () => startTarget('queue', 'SELECT, INSERT, UPDATE, DELETE, CREATE') },
  'mysql-row': { processes: true, start: () => startTarget('row') },
  'mysql-version': { processes: true, start: () => startTarget('version') },
  'mysql-for-update': { processes: true, start: () => startTarget('for-update'), sparesUnder: CONNECTION_ENDS },
  'mysql-get-lock': { processes: true, start: () => startTarget('get-lock'), sparesUnder: CONNECTION_ENDS },
};

/** @param rights without those for routines, `queue` does its steps as plain statements. */
async function startTarget(strategy: string, rights = 'ALL'): Promise<Target> {
  const clock = await clockShim();
  const server = await startMariadb(clock ? { env: clock.env } : {});
  // Workers have a password, so that it can be seen whether it gets anywhere.
  await sql(server.port, `CREATE USER worker IDENTIFIED BY '${PASSWORD}'; GRANT ${rights} ON test.* TO worker`);
  const [version] = await sql(server.port, 'SELECT VERSION() AS version');
  const proxies = new Map<string, FaultProxy>();
  return {
    urlFor: async (worker) => {
      const proxy = proxies.get(worker) ?? (await FaultProxy.start(server.port));
      proxies.set(worker, proxy);
      return urlOf(proxy.port, strategy, `worker:${PASSWORD}`);
    },
    ...(strategy === 'queue' && {
      observerUrl: urlOf(server.port, strategy, 'root'),
      deleteSome: () => deleteAll(server.port),
    }),
    tenant: (visit) => tenant(server.port, visit),
    oddSettings: oddSettings(
      SETTINGS,
      (name, value) => sql(server.port, `SET GLOBAL ${name} = ${value}`),
      (name) => sql(server.port, `SET GLOBAL ${name} = DEFAULT`),
    ),
    secrets: [PASSWORD],
    server,
    proxies,
    ...(clock && { clock }),
    endConnections: () => endSome(server.port),
    leftovers: (namespace) => leftovers(server.port, namespace),
    versions: { server: String(version?.['version']) },
    [Symbol.asyncDispose]: () => end(server, proxies, clock),
  };
}

/** What connections begin with. */
const SETTINGS = {
  autocommit: '0',
  completion_type: "'CHAIN'",
  tx_isolation: "'SERIALIZABLE'",
  sql_mode: "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,TRADITIONAL'",
  time_zone: "'-11:30'",
  innodb_lock_wait_timeout: '1',
  sql_select_limit: '1',
};

/** A text as MariaDB writes bytes, whatever its mode says about quotes. */
function literal(value: string): string {
  return `X'${Buffer.from(value).toString('hex')}'`;
}

/** Rows of names and namespaces that nobody has, and claims of nobody in our lines. */
async function tenant(port: number, { namespace, names, random }: Visit): Promise<void> {
  const [ours, theirs, name, garbage] = [namespace, STRANGER, strangeName(random), random.pick(GARBAGE)].map(literal);
  const id = literal(`${STRANGER} ${random.int(1e9)}`);
  const nobody = literal(`${STRANGER} ${random.int(1e9)} without a session`);
  const slots = ['row', 'version', 'mint', 'latch'].map(
    (table) => `INSERT IGNORE INTO holdfast_${table} VALUES (${ours}, ${name}, ${id}, -5, -1)`,
  );
  const weight = random.pick(['1', '-9', '2147483647', '9223372036854775807']);
  const added = [
    `INSERT IGNORE INTO holdfast_claim
       SELECT namespace, kind, name, last + ${random.int(20)}, ${nobody}, ${nobody}, 1, ${weight}, ${random.int(2)}, 0, 0, ${garbage}, NULL
       FROM holdfast_line WHERE namespace = ${ours} AND name = ${literal(random.pick(names))}`,
    `INSERT IGNORE INTO holdfast_session VALUES (${id}, ${theirs}, -1, 9223372036854775807)`,
    `INSERT IGNORE INTO holdfast_line VALUES (${ours}, 0, ${name}, -1, 7, -5, 3, 1, 0)`,
    `INSERT IGNORE INTO holdfast_claim VALUES (${ours}, 0, ${name}, 1, ${id}, ${id}, 1, -9, 1, 0, 0, ${garbage}, ${garbage})`,
    `INSERT IGNORE INTO holdfast_register VALUES (${ours}, ${name}, ${garbage}, 5, -1, 0, 0, NULL)`,
    ...slots,
  ];
  // A strategy makes the tables that it needs.
  for (const statement of added) await sql(port, statement).catch(() => {});
}

function urlOf(port: number, strategy: string, user: string): string {
  return `mysql://${user}@127.0.0.1:${port}/test?strategy=${strategy}`;
}

async function end(server: Server, proxies: ReadonlyMap<string, FaultProxy>, clock?: ClockShim): Promise<void> {
  for (const proxy of proxies.values()) await proxy[Symbol.asyncDispose]();
  await server.stop();
  clock?.[Symbol.dispose]();
}

/** All of them: a single row is half of a line, which no operator could take for the whole. */
async function deleteAll(port: number): Promise<void> {
  await sql(
    port,
    'START TRANSACTION; DELETE FROM holdfast_session; DELETE FROM holdfast_line; DELETE FROM holdfast_claim; COMMIT',
  );
}

async function endSome(port: number): Promise<void> {
  const rows = await sql(port, "SELECT id FROM information_schema.processlist WHERE user = 'worker'");
  for (const { id } of rows as { id: number }[]) {
    // It may have ended by itself.
    if (Math.random() < 0.5) await sql(port, `KILL CONNECTION ${id}`).catch(() => {});
  }
}

/** Idle lines and rows that are free may stay for some seconds. */
async function leftovers(port: number, namespace: string): Promise<string[]> {
  const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
  const questions = {
    session: 'TRUE',
    claim: `NOT LOCATE('${STRANGER}', id)`,
    line: 'held <> 0 OR waiting <> 0',
    row: `until > ${now}`,
    version: `until > ${now}`,
  };
  const left: string[] = [];
  // The locks that are known to be broken use none of our tables, and run first.
  if ((await sql(port, "SHOW TABLES LIKE 'holdfast_version'")).length === 0) return left;
  for (const [table, where] of Object.entries(questions)) {
    const [row] = await sql(
      port,
      `SELECT COUNT(*) AS many FROM holdfast_${table} WHERE namespace = '${namespace}' AND (${where})
         ${table === 'session' ? '' : `AND NOT LOCATE('${STRANGER}', name)`}`,
    );
    if (Number(row?.['many']) > 0) left.push(`${row?.['many']} of ${table}`);
  }
  return left;
}
