/**
 * Redis as a lock server: single, behind Sentinel, or a cluster. The protocol is one script, in steps.ts; the keys are
 * named in shards.ts; what we need of a client is port.ts.
 *
 *     enter ─▶ script ─▶ held              one round trip
 *              script ─▶ waiting ┄┄ leave of another: script ─▶ PUBLISH to our inbox, with the token ─▶ held
 *
 * A message is a hint: who missed one finds its grant when the subscription is back, or with the next beat.
 */
import type { Clock } from '../../core/clock.js';
import type {
  Engine,
  EngineLine,
  EngineSetup,
  EngineSource,
  LineQuery,
  OpenOptions,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { parseEngineUrl } from '../../core/url.js';
import { clientFromUrl } from './from-url.js';
import { IoredisPort, isIoredis } from './ioredis.js';
import { listLines } from './listing.js';
import { isNodeRedis, NodeRedisPort } from './node-redis.js';
import { explain, type RedisPort } from './port.js';
import { RedisRegisters } from './registers.js';
import { RedisSession } from './session.js';
import { Shard } from './shard.js';
import { allRealms, clusterRealm, realmOf, shardPrefix } from './shards.js';
import { traits } from './traits.js';
import { type RedisUrl, redisUrl } from './url.js';

export interface RedisOptions {
  /**
   * After a restart or a failover, grant nothing for one ttl, because locks may have been lost that somebody still
   * believes in. Default: true. Switch it off for tests and throw-away servers: on a server that has just been started
   * the first lock waits.
   */
  readonly epochGuard?: boolean;
}

/**
 * Locks in Redis, by a URL or on a client of yours, which is never closed: ioredis 5 or 6, iovalkey, node-redis 5 or 6;
 * also as a cluster or behind Sentinel.
 *
 * @example
 * import { Redis } from 'ioredis';
 * const locks = new Holdfast(redis(new Redis(6379)));
 */
export function redis(clientOrUrl: string | object, options: RedisOptions = {}): EngineSource {
  const { epochGuard = true } = options;
  if (typeof clientOrUrl === 'string') {
    const url = redisUrl(parseEngineUrl(clientOrUrl));
    return redisFromUrl({ ...url, epochGuard: options.epochGuard ?? url.epochGuard });
  }
  const cluster = portOf(clientOrUrl).cluster;
  const connect = async (setup: EngineSetup): Promise<Engine> =>
    new RedisEngine(portOf(clientOrUrl), epochGuard, setup);
  return { traits, ...(cluster && { realm: clusterRealm }), connect };
}

export function redisFromUrl(url: RedisUrl): EngineSource {
  return {
    traits,
    ...(url.kind === 'cluster' && { realm: clusterRealm }),
    connect: async (setup) => new RedisEngine(new IoredisPort(await clientFromUrl(url), true), url.epochGuard, setup),
  };
}

function portOf(client: object): RedisPort {
  if (client && isIoredis(client)) return new IoredisPort(client, false);
  if (client && isNodeRedis(client)) return new NodeRedisPort(client);
  throw new ConfigError(
    'redis() takes a URL like "redis://localhost:6379", or a client of ioredis, iovalkey or node-redis 5 or newer.',
  );
}

class RedisEngine implements Engine {
  readonly registers: RedisRegisters;
  readonly #port: RedisPort;
  readonly #clock: Clock;
  readonly #namespace: string;
  readonly #epochGuard: boolean;
  readonly #shards = new Map<string, { readonly shard: Shard; readonly sessions: Set<RedisSession> }>();

  constructor(port: RedisPort, epochGuard: boolean, { namespace, clock }: EngineSetup) {
    this.#port = port;
    this.#clock = clock;
    this.#namespace = namespace;
    this.#epochGuard = epochGuard;
    this.registers = new RedisRegisters(port, (name) => `${this.#prefix(realmOf(name, port.cluster))}register:${name}`);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const { shard, sessions } = this.#shard(options.realm);
    const session: RedisSession = new RedisSession({
      shard,
      options,
      listener,
      checkSubscriber: () => this.#port.checkSubscriber(),
      forget: () => sessions.delete(session),
    });
    // Another id than the session's: everybody can see which channels there are.
    const inbox = this.#clock.id();
    // Before the session exists, so that no message to it can get lost.
    const subscription = await this.#port.listen(shard.inboxes + inbox, session).catch(explain);
    try {
      if (!(await session.open(inbox, subscription))) warnUnguarded();
    } catch (error) {
      void subscription.close().catch(() => {});
      throw error;
    }
    sessions.add(session);
    return session;
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    const { cluster } = this.#port;
    const realms = query.name === undefined ? allRealms(cluster) : [realmOf(query.name, cluster)];
    for (const realm of realms) {
      await this.#shard(realm).shard.step(['reap', '', '0']);
      yield* listLines(this.#port, this.#prefix(realm), query);
    }
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const { shard } = this.#shard(realmOf(name, this.#port.cluster));
    return Number(await shard.step(['evict', claimId, name, reason])) === 1;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { shard } of this.#shards.values()) shard.close();
    await this.#port.close();
  }

  #prefix(realm: string): string {
    return shardPrefix(this.#namespace, realm);
  }

  #shard(realm: string): { readonly shard: Shard; readonly sessions: Set<RedisSession> } {
    const known = this.#shards.get(realm);
    if (known) return known;
    const sessions = new Set<RedisSession>();
    const shard = new Shard({
      port: this.#port,
      clock: this.#clock,
      prefix: this.#prefix(realm),
      epochGuard: this.#epochGuard,
      waits: () => [...sessions].some((session) => session.waits),
    });
    this.#shards.set(realm, { shard, sessions });
    return { shard, sessions };
  }
}

let warned = false;

function warnUnguarded(): void {
  if (warned) return;
  warned = true;
  process.emitWarning(
    'This Redis user may not call INFO, so a restart or a failover can’t be noticed: locks that were lost with it may ' +
      'be granted again at once. Allow it (ACL: +info), or set epochGuard to false if that does not matter.',
    'HoldfastWarning',
  );
}
