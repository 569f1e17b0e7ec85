/**
 * PostgreSQL as a lock server. Two strategies: `queue` (engine.ts: rows, and functions in the database) and `advisory`
 * (advisory/: PostgreSQL's own session locks). What we need of the client is client/database.ts.
 */
import type { Engine, EngineSetup, EngineSource, Traits } from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { checkOptions, type Known } from '../../core/options.js';
import { exportsOf, notLoaded } from '../../kit/peer.js';
import type { Schema } from '../../kit/schema.js';
import { located, parseEngineUrl, titleOfClient } from '../../kit/url.js';
import { AdvisoryEngine } from './advisory/engine.js';
import { Database, type PgPool } from './client/database.js';
import { Names, type SchemaOptions } from '../../sql/postgres-names.js';
import { QueueEngine } from './engine.js';
import { PostgresSchema } from './schema.js';
import { checkSettings } from './settings.js';
import { advisoryTraits, queueTraits } from './traits.js';
import { type PostgresUrl, postgresUrl } from './url.js';

export interface PostgresOptions extends SchemaOptions {
  /** Default: `queue`. */
  readonly strategy?: 'queue' | 'advisory';
  /** Whether missing tables and functions are made with the first use. Default: true. */
  readonly migrate?: boolean;
}

const OPTIONS: Known<PostgresOptions> = { strategy: true, migrate: true, schema: true, tablePrefix: true };

interface StrategyEngine {
  readonly traits: Traits;
  make(database: Database, names: Names, setup: EngineSetup): Engine;
}

const STRATEGIES: Readonly<Record<string, StrategyEngine>> = {
  queue: { traits: queueTraits, make: (database, names, setup) => new QueueEngine(database, names, setup) },
  advisory: { traits: advisoryTraits, make: (database, names, setup) => new AdvisoryEngine(database, names, setup) },
};

/** How many connections a URL's pool has at most, beside the one that listens: calls are short. */
const CONNECTIONS = 4;
const CONNECT_MS = 3_000;

/**
 * Locks in PostgreSQL, by a URL or on a pool of yours (`pg`), which is never closed.
 *
 * @example
 * import pg from 'pg';
 * const locks = new Holdfast(postgres(new pg.Pool({ host: 'localhost' })));
 */
export function postgres(poolOrUrl: string | object, options: PostgresOptions = {}): EngineSource {
  checkOptions(options, OPTIONS, 'postgres()');
  const { strategy = 'queue' } = options;
  if (typeof poolOrUrl === 'string') {
    const parsed = parseEngineUrl(poolOrUrl);
    const url = postgresUrl(parsed);
    const chosen = options.schema !== undefined || options.tablePrefix !== undefined;
    const names = chosen ? new Names(options) : url.names;
    const migrated = { ...url, names, migrate: options.migrate ?? url.migrate };
    return { ...postgresFromUrl(migrated, strategy), ...located(parsed) };
  }
  if (!isPool(poolOrUrl))
    throw new ConfigError('postgres() takes a URL like "postgres://localhost:5432/app", or a Pool of pg.');
  const names = new Names(options);
  const { migrate = true } = options;
  return {
    ...source(strategy, names, migrate, async () => new Database(poolOrUrl, false)),
    place: poolOrUrl,
    title: titleOfClient('postgres', poolOrUrl.options),
  };
}

export function postgresFromUrl(url: PostgresUrl, strategy: string): EngineSource {
  return source(strategy, url.names, url.migrate, () => databaseFromUrl(url));
}

export async function postgresSchema(url: PostgresUrl): Promise<Schema> {
  return new PostgresSchema(await databaseFromUrl(url), url.names);
}

function source(strategy: string, names: Names, migrate: boolean, open: () => Promise<Database>): EngineSource {
  const chosen = Object.hasOwn(STRATEGIES, strategy) ? STRATEGIES[strategy] : undefined;
  if (!chosen)
    throw new ConfigError(`postgres: there is no such strategy. Known: ${Object.keys(STRATEGIES).join(', ')}.`);
  return {
    traits: chosen.traits,
    connect: async (setup) => {
      const database = await open();
      try {
        await checkSettings(database);
        const schema = new PostgresSchema(database, names);
        await schema.ensure(migrate);
        if (migrate) database.remake = () => schema.migrate();
        return chosen.make(database, names, setup);
      } catch (error) {
        await database.close().catch(() => {});
        throw error;
      }
    },
  };
}

async function databaseFromUrl(url: PostgresUrl): Promise<Database> {
  const { Pool } = await loadPg();
  const { host, port, user, password, database, ssl, applicationName } = url;
  const pool = new Pool({
    ...{ host, port, user, password, database, ssl },
    application_name: applicationName,
    max: CONNECTIONS,
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
    // Held locks keep no process alive.
    allowExitOnIdle: true,
  });
  // An idle connection that breaks is replaced by the next call.
  pool.on('error', () => {});
  return new Database(pool as unknown as PgPool, true);
}

async function loadPg(): Promise<typeof import('pg')> {
  try {
    return exportsOf('pg', 'Pool', await import('pg'));
  } catch (error) {
    throw notLoaded('pg', error);
  }
}

/** By its shape: the user's `pg` may be another copy than ours. */
function isPool(candidate: object): candidate is PgPool {
  const { connect, options, Client, totalCount } = (candidate ?? {}) as Partial<PgPool>;
  return (
    typeof connect === 'function' &&
    typeof options === 'object' &&
    typeof Client === 'function' &&
    totalCount !== undefined
  );
}
