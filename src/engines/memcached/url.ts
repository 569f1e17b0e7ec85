/** What a URL of memcached says: `memcached://user:password@host:11211,host2,host3`. */
import { ConfigError } from '../../core/errors.js';
import type { EngineUrl } from '../../kit/url.js';
import { addressOf, type MemcachedServer } from './client/connection.js';

export interface MemcachedUrl {
  readonly servers: readonly MemcachedServer[];
  readonly user: string | undefined;
  readonly password: string | undefined;
}

export function memcachedUrl(url: EngineUrl): MemcachedUrl {
  if (url.scheme !== 'memcached' || url.hosts.length === 0)
    throw new ConfigError("A URL of memcached begins with 'memcached://' and a host.");
  if (url.path !== '' && url.path !== '/') throw new ConfigError('A URL of memcached has no path.');
  const servers = url.hosts.map(({ host, port }) => ({ host, port: port ?? 11_211 }));
  if (new Set(servers.map(addressOf)).size < servers.length)
    throw new ConfigError('A URL of memcached names each server once.');
  // They go as one line in front of everything else.
  if (/[\s\p{Cc}]/u.test(`${url.user ?? ''}${url.password ?? ''}`))
    throw new ConfigError('User and password of memcached can have no spaces.');
  return { servers, user: url.user, password: url.password };
}
