/**
 * URL scheme and strategy → traits and a lazy import. The only file that names engines: adding one means adding a row.
 * Traits are data, known before any client library is loaded, so what an engine can't do is refused when a lock is made.
 */
import { show } from './core/duration.js';
import type { EngineSource, Traits } from './core/engine.js';
import { ConfigError } from './core/errors.js';
import type { Schema } from './kit/schema.js';
import { type EngineUrl, parseEngineUrl, placeOf } from './kit/url.js';
import { realmsOf } from './engines/memcached/keys.js';
import { traits as memcachedTraits } from './engines/memcached/traits.js';
import { memcachedUrl } from './engines/memcached/url.js';
import { traits as etcdTraits } from './engines/etcd/traits.js';
import { etcdUrl, FILE_PARAMS as ETCD_FILES } from './engines/etcd/url.js';
import { traits as memoryTraits } from './engines/memory/traits.js';
import {
  advisoryTraits as postgresAdvisoryTraits,
  queueTraits as postgresQueueTraits,
} from './engines/postgres/traits.js';
import { PARAMS as POSTGRES_PARAMS, postgresUrl } from './engines/postgres/url.js';
import { STRATEGIES as mysqlStrategies } from './engines/mysql/traits.js';
import { URL_PARAMS as mysqlParams, mysqlUrl } from './engines/mysql/url.js';
import { clusterRealm } from './engines/redis/queue/keys.js';
import { hashTraits, plainTraits, redlockTraits, traits as redisTraits } from './engines/redis/traits.js';
import { redisUrl } from './engines/redis/url.js';
import { traits as sqliteTraits } from './engines/sqlite/traits.js';
import { traits as zookeeperTraits } from './engines/zookeeper/traits.js';
import { FILE_PARAMS as ZOOKEEPER_FILES, zookeeperUrl } from './engines/zookeeper/url.js';

interface Strategy {
  readonly traits: Traits;
  load(url: EngineUrl): Promise<EngineSource>;
  readonly realm?: (url: EngineUrl) => (name: string) => string;
  /** Throws if something is wrong with the URL, so that it is told when the Holdfast is made. */
  check?(url: EngineUrl): unknown;
  /** Absent where there is nothing to set up. */
  readonly schema?: (url: EngineUrl) => Promise<Schema>;
}

interface Scheme {
  /** Whether its URLs name servers: `scheme://host`. Default: no. */
  readonly hosts?: boolean;
  /** By name, the default first. */
  readonly strategies: Readonly<Record<string, Strategy>>;
  /** Parameters that the URL may carry beside `strategy`. */
  readonly params: readonly string[];
}

const redisQueue: Strategy = {
  traits: redisTraits,
  check: redisUrl,
  load: async (url) => (await import('./engines/redis/index.js')).redisFromUrl(redisUrl(url)),
};
const redisPlain: Strategy = { ...redisQueue, traits: plainTraits };
const redisHash: Strategy = { ...redisQueue, traits: hashTraits };
const REDIS: Scheme = {
  hosts: true,
  params: ['epochGuard'],
  strategies: { queue: redisQueue, plain: redisPlain, hash: redisHash },
};
const REDIS_SENTINEL: Scheme = { ...REDIS, params: [...REDIS.params, 'sentinelPassword'] };
const REDIS_CLUSTER: Scheme = {
  ...REDIS,
  strategies: { ...REDIS.strategies, queue: { ...redisQueue, realm: () => clusterRealm } },
};
const REDLOCK: Scheme = { ...REDIS, strategies: { ballot: { ...redisQueue, traits: redlockTraits } } };

function postgres(name: string, traits: Traits): Strategy {
  return {
    traits,
    check: postgresUrl,
    load: async (url) => (await import('./engines/postgres/index.js')).postgresFromUrl(postgresUrl(url), name),
    schema: async (url) => (await import('./engines/postgres/index.js')).postgresSchema(postgresUrl(url)),
  };
}
const POSTGRES: Scheme = {
  hosts: true,
  params: POSTGRES_PARAMS,
  strategies: {
    queue: postgres('queue', postgresQueueTraits),
    advisory: postgres('advisory', postgresAdvisoryTraits),
  },
};
const MYSQL: Scheme = {
  hosts: true,
  params: mysqlParams,
  strategies: Object.fromEntries(
    Object.entries(mysqlStrategies).map(([name, traits]): [string, Strategy] => [
      name,
      {
        traits,
        check: mysqlUrl,
        load: async (url) => (await import('./engines/mysql/index.js')).mysqlFromUrl(mysqlUrl(url)),
        schema: async (url) => (await import('./engines/mysql/index.js')).mysqlSchema(mysqlUrl(url)),
      },
    ]),
  ),
};
const ETCD: Scheme = {
  hosts: true,
  params: [],
  strategies: {
    queue: {
      traits: etcdTraits,
      check: etcdUrl,
      load: async (url) => (await import('./engines/etcd/index.js')).etcdFromUrl(etcdUrl(url)),
    },
  },
};
const ZOOKEEPER: Scheme = {
  hosts: true,
  params: [],
  strategies: {
    queue: {
      traits: zookeeperTraits,
      check: zookeeperUrl,
      load: async (url) => (await import('./engines/zookeeper/index.js')).zookeeperFromUrl(zookeeperUrl(url)),
    },
  },
};

const SCHEMES: Readonly<Record<string, Scheme>> = {
  memory: {
    params: [],
    strategies: {
      queue: {
        traits: memoryTraits,
        load: async ({ path }) => (await import('./engines/memory/index.js')).memory(path),
      },
    },
  },
  sqlite: {
    params: [],
    strategies: {
      queue: {
        traits: sqliteTraits,
        load: async ({ path }) => (await import('./engines/sqlite/index.js')).sqlite(path),
      },
    },
  },
  redis: REDIS,
  rediss: REDIS,
  'redis+sentinel': REDIS_SENTINEL,
  'rediss+sentinel': REDIS_SENTINEL,
  'redis+cluster': REDIS_CLUSTER,
  'rediss+cluster': REDIS_CLUSTER,
  postgres: POSTGRES,
  postgresql: POSTGRES,
  redlock: REDLOCK,
  mysql: MYSQL,
  mariadb: MYSQL,
  memcached: {
    hosts: true,
    params: [],
    strategies: {
      slots: {
        traits: memcachedTraits,
        check: memcachedUrl,
        realm: (url) => realmsOf(memcachedUrl(url)),
        load: async (url) => (await import('./engines/memcached/index.js')).memcachedFromUrl(memcachedUrl(url)),
      },
    },
  },
  etcd: ETCD,
  etcds: { ...ETCD, params: ETCD_FILES },
  zookeeper: ZOOKEEPER,
  zookeepers: { ...ZOOKEEPER, params: ZOOKEEPER_FILES },
};

/** The engine that a URL stands for, not loaded yet. */
export function engineFromUrl(text: string): EngineSource {
  const { url, strategy } = find(text);
  return {
    traits: strategy.traits,
    place: placeOf(url),
    ...(strategy.realm && { realm: strategy.realm(url) }),
    connect: async (setup) => (await strategy.load(url)).connect(setup),
  };
}

/** The tables that the URL's engine needs; undefined where it needs none. */
export async function schemaFromUrl(text: string): Promise<Schema | undefined> {
  const { url, strategy } = find(text);
  return strategy.schema?.(url);
}

function find(text: string): { readonly url: EngineUrl; readonly strategy: Strategy } {
  const url = parseEngineUrl(text);
  const scheme = Object.hasOwn(SCHEMES, url.scheme) ? SCHEMES[url.scheme] : undefined;
  if (!scheme) throw new ConfigError(`There is no engine for ${show(`${url.scheme}:`)}. Known: ${list(SCHEMES, ':')}.`);
  if (!scheme.hosts && url.hosts.length > 0)
    throw new ConfigError(`${url.scheme}: has no servers. Write '${url.scheme}:name', without '//'.`);
  const strategy = chooseStrategy(url, scheme);
  checkParams(url, scheme);
  strategy.check?.(url);
  return { url, strategy };
}

function chooseStrategy(url: EngineUrl, { strategies }: Scheme): Strategy {
  const name = url.params.get('strategy') ?? Object.keys(strategies)[0]!;
  const strategy = Object.hasOwn(strategies, name) ? strategies[name] : undefined;
  if (!strategy) throw new ConfigError(`${url.scheme}: has no strategy ${show(name)}. Known: ${list(strategies)}.`);
  return strategy;
}

function checkParams(url: EngineUrl, scheme: Scheme): void {
  const allowed = ['strategy', ...scheme.params];
  const unknown = [...url.params.keys()].find((param) => !allowed.includes(param));
  if (unknown === undefined) return;
  throw new ConfigError(`${url.scheme}: does not know the parameter ${show(unknown)}. Known: ${allowed.join(', ')}.`);
}

function list(known: Readonly<Record<string, unknown>>, suffix = ''): string {
  return Object.keys(known)
    .map((name) => name + suffix)
    .join(', ');
}
