/**
 * What a URL of Redis says, without any client.
 *
 *     redis://user:password@host:6379/0                rediss:// for TLS
 *     redis+sentinel://host:26379,host2/master-name/0
 *     redis+cluster://host:6379,host2:6379
 *     redlock://host:6379,host2,host3/0               rediss servers: redlock([…]) in code
 */
import { parseDuration, show } from '../../core/duration.js';
import { ConfigError } from '../../core/errors.js';
import { decode, type EngineUrl } from '../../kit/url.js';
import type { EpochGuard } from './epoch-guard.js';

export interface RedisUrl {
  readonly kind: 'single' | 'sentinel' | 'cluster' | 'redlock';
  readonly tls: boolean;
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly db: number;
  /** What Sentinel calls the server. */
  readonly master: string;
  readonly sentinelPassword: string | undefined;
  readonly strategy: string | undefined;
  readonly epochGuard: EpochGuard;
}

const KINDS: Readonly<Record<string, RedisUrl['kind']>> = {
  redis: 'single',
  rediss: 'single',
  'redis+sentinel': 'sentinel',
  'rediss+sentinel': 'sentinel',
  'redis+cluster': 'cluster',
  'rediss+cluster': 'cluster',
  redlock: 'redlock',
};

export function redisUrl(url: EngineUrl): RedisUrl {
  const kind = Object.hasOwn(KINDS, url.scheme) ? KINDS[url.scheme] : undefined;
  if (!kind || url.hosts.length === 0) {
    const schemes = Object.keys(KINDS).map((scheme) => `'${scheme}://'`);
    throw new ConfigError(`A URL of Redis begins with ${schemes.join(', ')} and a host.`);
  }
  const port = kind === 'sentinel' ? 26_379 : 6_379;
  return {
    kind,
    tls: url.scheme.startsWith('rediss'),
    hosts: url.hosts.map((host) => ({ host: host.host, port: host.port ?? port })),
    user: url.user,
    password: url.password,
    ...pathOf(url, kind),
    sentinelPassword: url.params.get('sentinelPassword'),
    strategy: url.params.get('strategy'),
    epochGuard: guardOf(url),
  };
}

function pathOf({ path, hosts }: EngineUrl, kind: RedisUrl['kind']): { db: number; master: string } {
  const parts = path.split('/').slice(1);
  const master = kind === 'sentinel' ? decode(parts.shift() ?? '') : '';
  if (kind === 'sentinel' && master === '')
    throw new ConfigError(
      "A URL of Sentinel says what the server is called there: 'redis+sentinel://host:26379/mymaster'.",
    );
  const [db = '', ...more] = parts;
  if (!/^\d{0,4}$/.test(db) || more.length > 0)
    throw new ConfigError("The path of a URL of Redis is the number of a database: 'redis://localhost:6379/0'.");
  if (kind === 'cluster' && Number(db) !== 0) throw new ConfigError('A Redis cluster has database 0 only.');
  if (kind === 'single' && hosts.length > 1)
    throw new ConfigError(
      "'redis://' has one host. For more, use 'redis+cluster://', 'redis+sentinel://' or 'redlock://'.",
    );
  const all = hosts.map(({ host, port }) => `${host}:${port ?? ''}`);
  if (kind === 'redlock' && new Set(all).size < all.length)
    throw new ConfigError('redlock: got the same server twice: it would have two votes.');
  return { db: Number(db), master };
}

function guardOf({ params }: EngineUrl): EpochGuard {
  const text = params.get('epochGuard') ?? 'true';
  if (text === 'true' || text === 'false') return text === 'true';
  try {
    return parseDuration(text, 'epochGuard');
  } catch {
    throw new ConfigError(`epochGuard is 'true', 'false' or a duration like '60s'; got ${show(text)}.`);
  }
}
