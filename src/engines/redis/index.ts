/**
 * Redis as a lock server: single, behind Sentinel, or a cluster; what we need of a client is client/port.ts.
 *
 * Three strategies: `queue` (queue/) is ours and can do everything. `plain` (slots/plain.ts) and `hash` (slots/hash.ts)
 * speak what programs in other languages speak, so that they and we exclude each other. Several independent servers are
 * redlock/.
 */
import type { Engine, EngineSetup, EngineSource, Traits } from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { checkOptions, type Known } from '../../core/options.js';
import { located, parseEngineUrl, titleOfClient } from '../../kit/url.js';
import { show } from '../../core/duration.js';
import { type EpochGuard, leastGuardMs } from './epoch-guard.js';
import { clientFromUrl } from './from-url.js';
import { hash } from './slots/hash.js';
import { IoredisPort } from './client/ioredis.js';
import { plain } from './slots/plain.js';
import { portOf } from './client/port-of.js';
import type { RedisPort } from './client/port.js';
import { QueueEngine } from './queue/engine.js';
import { redlockFromUrl } from './redlock/index.js';
import { clusterRealm } from './queue/keys.js';
import { SlotEngine } from './slots/engine.js';
import { hashTraits, plainTraits, queueTraits } from './traits.js';
import { type RedisUrl, redisUrl } from './url.js';

export { redlock, type RedlockOptions } from './redlock/index.js';

export type RedisStrategy = 'queue' | 'plain' | 'hash';

export interface RedisOptions {
  /**
   * - `queue` (default): a fair line, read/write locks, semaphores, elections
   * - `plain`: `SET key … NX PX`, as many libraries of other languages lock
   * - `hash`: the layout of Redisson, for services in Java
   */
  readonly strategy?: RedisStrategy;
  /** What the key of a lock is called, for `plain` and `hash`. Default: the namespace, a colon and the name. */
  readonly key?: (name: string) => string;
  /**
   * After a restart or a failover, grant nothing for one ttl, because locks may have been lost that somebody still
   * believes in. Default: true. Where instances with different ttls share locks, give the longest of them, `'60s'`: a server that
   * has lost its memory does not know it. Switch it off (`false`) for tests and throw-away servers: on a server that has just been
   * started the first lock waits. Only for `queue`.
   */
  readonly epochGuard?: EpochGuard;
}

const OPTIONS: Known<RedisOptions> = { strategy: true, key: true, epochGuard: true };

/**
 * Locks in Redis, by a URL or on a client of yours, which is never closed: ioredis 5 or 6, iovalkey, node-redis 5 or 6;
 * also as a cluster or behind Sentinel.
 *
 * @example
 * import { Redis } from 'ioredis';
 * const locks = new Holdfast(redis(new Redis(6379)));
 */
export function redis(clientOrUrl: string | object, options: RedisOptions = {}): EngineSource {
  checkOptions(options, OPTIONS, 'redis()');
  if (typeof clientOrUrl !== 'string') {
    const cluster = portOf(clientOrUrl).cluster;
    const title = titleOfClient('redis', (clientOrUrl as { options?: unknown }).options);
    return { ...source(options, cluster, async () => portOf(clientOrUrl)), place: clientOrUrl, title };
  }
  const parsed = parseEngineUrl(clientOrUrl);
  return { ...redisFromUrl(redisUrl(parsed), options), ...located(parsed) };
}

export function redisFromUrl(url: RedisUrl, options: RedisOptions = {}): EngineSource {
  if (url.kind === 'redlock') return redlockFromUrl(url);
  const { strategy = url.strategy as RedisStrategy, epochGuard = url.epochGuard } = options;
  return source(
    { ...options, strategy, epochGuard },
    url.kind === 'cluster',
    async () => new IoredisPort(await clientFromUrl(url), true, url.kind === 'single' ? [] : url.hosts),
  );
}

interface EngineMaker {
  readonly traits: Traits;
  make(port: RedisPort, options: RedisOptions, setup: EngineSetup): Engine;
}

const STRATEGIES: Readonly<Record<RedisStrategy, EngineMaker>> = {
  queue: {
    traits: queueTraits,
    make: (port, { epochGuard = true }, setup) => new QueueEngine(port, leastGuardMs(epochGuard), setup),
  },
  plain: { traits: plainTraits, make: (port, { key }, setup) => new SlotEngine(port, plain, key, setup) },
  hash: { traits: hashTraits, make: (port, { key }, setup) => new SlotEngine(port, hash, key, setup) },
};

function source(options: RedisOptions, cluster: boolean, connect: () => Promise<RedisPort>): EngineSource {
  const name = options.strategy ?? 'queue';
  if (!Object.hasOwn(STRATEGIES, name))
    throw new ConfigError(`redis has no strategy ${show(name)}. Known: ${Object.keys(STRATEGIES).join(', ')}.`);
  if (name === 'queue' && options.key)
    throw new ConfigError("'key' is for the strategies 'plain' and 'hash': a queue has keys of its own.");
  // What is wrong with it is said when it is given, not when the first lock is taken.
  leastGuardMs(options.epochGuard ?? true);
  const strategy = STRATEGIES[name];
  return {
    traits: strategy.traits,
    ...(cluster && name === 'queue' && { realm: clusterRealm }),
    connect: async (setup) => strategy.make(await connect(), options, setup),
  };
}
