/**
 * PostgreSQL as a lock server. Two strategies: `queue` (queue.ts: rows, and functions in the database) and `advisory`
 * (advisory/: PostgreSQL's own session locks). What we need of the client is client/database.ts.
 */
import type { Engine, EngineSetup, EngineSource, Traits } from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { loadPeer } from '../../kit/peer.js';
import type { Schema } from '../../kit/schema.js';
import { parseEngineUrl, placeOf } from '../../kit/url.js';
import { AdvisoryEngine } from './advisory/engine.js';
import { Database, type PgPool } from './client/database.js';
import { Names, type SchemaOptions } from '../../sql/postgres-names.js';
import { checkSettings, QueueEngine } from './engine.js';
import { PostgresSchema } from './schema.js';
import { advisoryTraits, queueTraits } from './traits.js';
import { type PostgresUrl, postgresUrl } from './url.js';

export interface PostgresOptions extends SchemaOptions {
  /** Default: `queue`. */
  readonly strategy?: 'queue' | 'advisory';
  /** Whether missing tables and functions are made with the first use. Default: true. */
  readonly migrate?: boolean;
}

interface Strategy {
  readonly traits: Traits;
  make(database: Database, names: Names, setup: EngineSetup): Engine;
}

const STRATEGIES: Readonly<Record<string, Strategy>> = {
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
  const { strategy = 'queue' } = options;
  if (typeof poolOrUrl === 'string') {
    const parsed = parseEngineUrl(poolOrUrl);
    const url = postgresUrl(parsed);
    const chosen = options.schema !== undefined || options.tablePrefix !== undefined;
    const names = chosen ? new Names(options) : url.names;
    const migrated = { ...url, names, migrate: options.migrate ?? url.migrate };
    return { ...postgresFromUrl(migrated, strategy), place: placeOf(parsed) };
  }
  if (!isPool(poolOrUrl))
    throw new ConfigError('postgres() takes a URL like "postgres://localhost:5432/app", or a Pool of pg.');
  const names = new Names(options);
  const { migrate = true } = options;
  return { ...source(strategy, names, migrate, async () => new Database(poolOrUrl, false)), place: poolOrUrl };
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
        await new PostgresSchema(database, names).ensure(migrate);
        return chosen.make(database, names, setup);
      } catch (error) {
        await database.close().catch(() => {});
        throw error;
      }
    },
  };
}

async function databaseFromUrl(url: PostgresUrl): Promise<Database> {
  const { default: pg } = await loadPeer('pg', () => import('pg'));
  const { host, port, user, password, database, ssl, applicationName } = url;
  const pool = new pg.Pool({
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
