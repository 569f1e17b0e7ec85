/**
 * MySQL and MariaDB as lock servers. The strategies: `queue` in queue/ (its statements.ts is for users who may
 * not create routines), `row` and `version` in rows/, `for-update` and `get-lock` in pinned/. What is needed of the client is
 * client/; the tables are made by schema.ts.
 */
import type { Engine, EngineSetup, EngineSource } from '../../core/engine.js';
import type { Schema } from '../../kit/schema.js';
import { checkOptions, type Known } from '../../core/options.js';
import { located, parseEngineUrl, titleOfClient } from '../../kit/url.js';
import { warnOnce } from '../../kit/warn-once.js';
import { Database } from './client/database.js';
import { poolOf, type RawPool } from './client/port.js';
import { Connections } from './client/connections.js';
import { Tenure } from './client/tenure.js';
import { getLockExcludes, proveExclusion, rowLocksExclude } from './pinned/exclusion.js';
import { forUpdateStore } from './pinned/for-update.js';
import { getLockStore } from './pinned/get-lock.js';
import { Pins } from './pinned/pins.js';
import { checkPrimaries } from './pinned/several-primaries.js';
import { poolFromUrl } from './pool.js';
import { QueueEngine } from './queue/engine.js';
import { procedureSteps, type Steps } from './queue/protocol.js';
import { statementSteps } from './queue/statements.js';
import { rowStore, versionStore } from './rows/protocol.js';
import { ensureSchema, hasProcedures, MysqlSchema } from './schema.js';
import { SlotEngine } from './rows/engine.js';
import { type MysqlStrategy, STRATEGIES } from './traits.js';
import { checkSettings, type MysqlSettings, type MysqlUrl, mysqlUrl, type SeveralPrimaries } from './url.js';

export interface MysqlOptions {
  /** How a lock is kept; the engine's page says which is for what. Default: `'queue'`. */
  readonly strategy?: MysqlStrategy;
  /** What the names of tables and routines begin with. Default: `'holdfast_'`. */
  readonly tablePrefix?: string;
  /** Whether tables and routines are made at the first use, where they are missing. Default: true. */
  readonly migrate?: boolean;
  /** How many connections the strategies may use that need one for each lock. Default: 64. */
  readonly connections?: number;
  /** What these do where the server is one of several primaries, as in Galera. Default: `'refuse'`. */
  readonly severalPrimaries?: SeveralPrimaries;
}

const OPTIONS: Known<MysqlOptions> = {
  strategy: true,
  tablePrefix: true,
  migrate: true,
  connections: true,
  severalPrimaries: true,
};

/**
 * Locks in MySQL or MariaDB, by a URL or on a pool of yours, which is never closed.
 *
 * @example
 * import { createPool } from 'mysql2/promise';
 * const locks = new Holdfast(mysql(createPool({ host: 'localhost', database: 'app' })));
 */
export function mysql(poolOrUrl: string | object, options: MysqlOptions = {}): EngineSource {
  checkOptions(options, OPTIONS, 'mysql()');
  if (typeof poolOrUrl === 'string') {
    const parsed = parseEngineUrl(poolOrUrl);
    const url = mysqlUrl(parsed);
    return { ...mysqlFromUrl({ ...url, ...checkSettings({ ...url, ...options }) }), ...located(parsed) };
  }
  const settings = checkSettings(options);
  const pool = poolOf(poolOrUrl);
  const pools = async (): Promise<Pools> => ({ usual: pool, pinned: pool, owned: false });
  const { [settings.strategy]: traits } = STRATEGIES;
  return {
    traits,
    place: poolOrUrl,
    title: titleOfPool(poolOrUrl),
    connect: (setup) => connect(pools, settings, setup),
  };
}

/** mysql2 keeps the address with the settings of its connections. */
function titleOfPool(pool: object): string {
  return titleOfClient('mysql', (pool as { config?: { connectionConfig?: unknown } }).config?.connectionConfig);
}

export function mysqlFromUrl(url: MysqlUrl): EngineSource {
  const isPinned = STRATEGIES[url.strategy].liveness === 'connection';
  const pools = async (): Promise<Pools> => {
    const usual = await poolFromUrl(url);
    return { usual, pinned: isPinned ? await poolFromUrl(url, url.connections) : usual, owned: true };
  };
  return { traits: STRATEGIES[url.strategy], connect: (setup) => connect(pools, url, setup) };
}

export function mysqlSchema(url: MysqlUrl): Schema {
  const open = async (): Promise<Database> => new Database(new Connections(await poolFromUrl(url), true, new Tenure()));
  return new MysqlSchema(open, url.tablePrefix);
}

/** Connections that carry locks come from a pool of their own, where it is we who make it. */
interface Pools {
  readonly usual: RawPool;
  readonly pinned: RawPool;
  readonly owned: boolean;
}

/** Fewer than a pool of ours has connections: those that are late don't count. */
const CALLS_AT_ONCE = 6;

async function connect(open: () => Promise<Pools>, settings: MysqlSettings, setup: EngineSetup): Promise<Engine> {
  const pools = await open();
  const tenure = new Tenure();
  const usual = new Connections(pools.usual, pools.owned, tenure);
  const pinned = pools.pinned === pools.usual ? usual : new Connections(pools.pinned, pools.owned, tenure);
  const database = new Database(usual, pools.owned ? CALLS_AT_ONCE : undefined);
  try {
    const needs = { mayMigrate: settings.migrate, procedures: settings.strategy === 'queue' };
    const prepare = (): Promise<void> => ensureSchema(database, settings.tablePrefix, needs);
    await prepare();
    tenure.onArrival(prepare);
    return await engineOf({ database, usual, pinned }, settings, setup);
  } catch (error) {
    await pinned.end();
    await database.close();
    throw error;
  }
}

interface Means {
  readonly database: Database;
  readonly usual: Connections;
  readonly pinned: Connections;
}

async function engineOf(
  { database, usual, pinned }: Means,
  { strategy, tablePrefix: prefix, connections, severalPrimaries }: MysqlSettings,
  setup: EngineSetup,
): Promise<Engine> {
  if (strategy === 'queue') return new QueueEngine({ database, prefix, steps: await stepsOf(database, prefix) }, setup);
  const rows = { database, prefix, close: async () => {} };
  if (strategy === 'row') return new SlotEngine({ ...rows, tables: ['row'], store: rowStore }, setup);
  if (strategy === 'version') return new SlotEngine({ ...rows, tables: ['version'], store: versionStore }, setup);
  await checkPrimaries(strategy, severalPrimaries, (sql) => database.rows(sql, []));
  const pins = new Pins(pinned, connections);
  const pools = { first: pinned, second: usual };
  const trial = strategy === 'get-lock' ? getLockExcludes : rowLocksExclude(prefix);
  const connected = {
    database,
    prefix,
    prove: (withinMs: number) => proveExclusion(strategy, pools, trial, withinMs),
    close: () => pins.close(),
  };
  if (strategy === 'get-lock')
    return new SlotEngine(
      { ...connected, tables: ['mint'], store: (store) => getLockStore({ ...store, pins }) },
      setup,
    );
  return new SlotEngine(
    { ...connected, tables: ['mint', 'latch'], store: (store) => forUpdateStore({ ...store, pins }) },
    setup,
  );
}

/** One round trip for each step, where the user may have that. */
async function stepsOf(database: Database, prefix: string): Promise<Steps> {
  if (await hasProcedures(database, prefix)) return procedureSteps(database, prefix);
  warnWithoutRoutines();
  return statementSteps(database, prefix);
}

function warnWithoutRoutines(): void {
  warnOnce(
    'The database user may not create or run stored procedures: each step of a lock takes about nine round trips to MySQL ' +
      'instead of one. Let somebody who may run `holdfast schema apply`, and grant EXECUTE.',
  );
}
