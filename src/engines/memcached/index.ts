/**
 * memcached as a lock server: one key per lock (protocol.ts), on one of several servers that know nothing of each other. It
 * is a cache: what it evicts or forgets in a restart is lost, and told with the next beat.
 */
import type { EngineSource } from '../../core/engine.js';
import { located, parseEngineUrl } from '../../kit/url.js';
import { MemcachedEngine } from './engine.js';
import { realmsOf } from './keys.js';
import { traits } from './traits.js';
import { type MemcachedUrl, memcachedUrl } from './url.js';

/**
 * Locks in memcached, version 1.6 or newer. With several servers each name has one of them.
 *
 * @example
 * const locks = new Holdfast(memcached('memcached://localhost:11211'));
 */
export function memcached(url: string): EngineSource {
  const parsed = parseEngineUrl(url);
  return { ...memcachedFromUrl(memcachedUrl(parsed)), ...located(parsed) };
}

export function memcachedFromUrl(url: MemcachedUrl): EngineSource {
  return {
    traits,
    realm: realmsOf(url),
    connect: async (setup) => new MemcachedEngine(url, setup),
  };
}
