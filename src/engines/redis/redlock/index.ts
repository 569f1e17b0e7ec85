/**
 * Redlock: one lock over several independent Redis servers, held by whoever has it on more than half of them, with a
 * fencing token. How it is taken, kept and freed there is in store.ts; what a node is asked is in protocol.ts.
 */
import type { EngineSource } from '../../../core/engine.js';
import { ConfigError } from '../../../core/errors.js';
import { checkOptions, type Known } from '../../../core/options.js';
import { located, parseEngineUrl, titleOf } from '../../../kit/url.js';
import { warnOnce } from '../../../kit/warn-once.js';
import { IoredisPort } from '../client/ioredis.js';
import { portOf } from '../client/port-of.js';
import type { RedisPort } from '../client/port.js';
import { type EpochGuard, leastGuardMs } from '../epoch-guard.js';
import { clientFromUrl } from '../from-url.js';
import { redlockTraits } from '../traits.js';
import { type RedisUrl, redisUrl } from '../url.js';
import { RedlockEngine } from './engine.js';

export interface RedlockOptions {
  /** What the key of a lock is called. Default: the namespace, a colon and the name. */
  readonly key?: (name: string) => string;
  /**
   * A node that has just started may have lost locks, so it takes part in no new one for one ttl. Default: true. Switch it
   * off for tests and throw-away servers: on servers that have just been started the first lock waits. A duration: at least so long.
   */
  readonly epochGuard?: EpochGuard;
}

const OPTIONS: Known<RedlockOptions> = { key: true, epochGuard: true };

/**
 * One lock over several independent Redis servers, given by URLs or by clients of yours, which are never closed. An odd
 * number is best: three survive the loss of one, five the loss of two. All users of a name must have the same servers
 * and the same ttl.
 *
 * @example
 * const locks = new Holdfast(redlock(['redis://a:6379', 'redis://b:6379', 'redis://c:6379']));
 */
export function redlock(clientsOrUrls: readonly (string | object)[], options: RedlockOptions = {}): EngineSource {
  checkOptions(options, OPTIONS, 'redlock()');
  if (!Array.isArray(clientsOrUrls) || clientsOrUrls.length === 0)
    throw new ConfigError('redlock() takes a list of clients or URLs, of three servers or more.');
  if (new Set(clientsOrUrls).size < clientsOrUrls.length)
    throw new ConfigError('redlock() got the same server twice: it would have two votes.');
  const nodes = clientsOrUrls.map((node) => {
    if (typeof node === 'string') return redlockNode(redisUrl(parseEngineUrl(node)));
    if (portOf(node).cluster) throw new ConfigError('redlock() takes single servers, not a cluster.');
    return async () => portOf(node);
  });
  const [first] = clientsOrUrls;
  const hosts = clientsOrUrls.flatMap((node) => (typeof node === 'string' ? parseEngineUrl(node).hosts : []));
  return {
    ...source(nodes, options),
    place: typeof first === 'string' ? located(parseEngineUrl(first)).place : first,
    title: hosts.length > 0 ? titleOf('redlock', hosts) : 'redlock',
  };
}

/** `redlock://user:password@host1:6379,host2,host3/0` */
export function redlockFromUrl(url: RedisUrl): EngineSource {
  return source(
    url.hosts.map((host) => redlockNode({ ...url, kind: 'single', hosts: [host] })),
    { epochGuard: url.epochGuard },
  );
}

/** Fewer survive the loss of none. */
const LEAST_NODES = 3;

function warnOfFew(count: number): void {
  const few =
    count === 1
      ? 'one server survives no loss: it is as good as redis://'
      : 'two servers survive the loss of none of them';
  warnOnce(`redlock: a lock needs more than half of the servers, so ${few}. Use three or five.`);
}

function redlockNode(url: RedisUrl): () => Promise<RedisPort> {
  if (url.kind !== 'single') throw new ConfigError("redlock() takes single servers: 'redis://' or 'rediss://'.");
  return async () => new IoredisPort(await clientFromUrl(url), true);
}

function source(
  nodes: readonly (() => Promise<RedisPort>)[],
  { key, epochGuard = true }: RedlockOptions,
): EngineSource {
  const leastMs = leastGuardMs(epochGuard);
  if (nodes.length < LEAST_NODES) warnOfFew(nodes.length);
  return {
    traits: redlockTraits,
    connect: async (setup) => {
      const ports = await Promise.all(nodes.map((connect) => connect()));
      return new RedlockEngine(ports, key, leastMs, setup);
    },
  };
}
