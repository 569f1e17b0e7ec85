/**
 * MySQL and MariaDB as lock servers. Each strategy has its protocol in a file of its own: queue-sql.ts and queue.ts.
 * What is needed of the client is client.ts; the tables are made by schema.ts.
 */
import type { Engine, EngineSetup, EngineSource } from '../../core/engine.js';
import type { Schema } from '../../core/schema.js';
import { parseEngineUrl } from '../../core/url.js';
import { Database, poolOf } from './client.js';
import { poolFromUrl } from './pool.js';
import { QueueEngine } from './queue.js';
import { ensureSchema, MysqlSchema } from './schema.js';
import { type MysqlStrategy, STRATEGIES } from './traits.js';
import { checkSettings, type MysqlSettings, type MysqlUrl, mysqlUrl } from './url.js';

export interface MysqlOptions {
  /** How a lock is kept; the engine's page says which is for what. Default: `'queue'`. */
  readonly strategy?: MysqlStrategy;
  /** What the names of tables and routines begin with. Default: `'holdfast_'`. */
  readonly tablePrefix?: string;
  /** Whether tables and routines are made at the first use, where they are missing. Default: true. */
  readonly migrate?: boolean;
  /** How many connections the strategies may use that need one for each lock. Default: 64. */
  readonly connections?: number;
}

/**
 * Locks in MySQL or MariaDB, by a URL or on a pool of yours, which is never closed.
 *
 * @example
 * import { createPool } from 'mysql2/promise';
 * const locks = new Holdfast(mysql(createPool({ host: 'localhost', database: 'app' })));
 */
export function mysql(poolOrUrl: string | object, options: MysqlOptions = {}): EngineSource {
  if (typeof poolOrUrl === 'string') {
    const url = mysqlUrl(parseEngineUrl(poolOrUrl));
    return mysqlFromUrl({ ...url, ...checkSettings({ ...url, ...options }) });
  }
  const settings = checkSettings(options);
  const pool = poolOf(poolOrUrl);
  return {
    traits: STRATEGIES[settings.strategy],
    connect: (setup) => connect(new Database(pool, false), settings, setup),
  };
}

export function mysqlFromUrl(url: MysqlUrl): EngineSource {
  return {
    traits: STRATEGIES[url.strategy],
    connect: async (setup) => connect(new Database(await poolFromUrl(url), true), url, setup),
  };
}

export function mysqlSchema(url: MysqlUrl): Schema {
  return new MysqlSchema(async () => new Database(await poolFromUrl(url), true), url.tablePrefix);
}

async function connect(database: Database, settings: MysqlSettings, setup: EngineSetup): Promise<Engine> {
  try {
    await ensureSchema(database, settings.tablePrefix, settings.migrate);
    return new QueueEngine(database, settings.tablePrefix, setup);
  } catch (error) {
    await database.close();
    throw error;
  }
}
