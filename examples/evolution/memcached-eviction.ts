import { fence } from '../../src/fence/index.js';
import { Holdfast, StaleTokenError } from '../../src/index.js';
import { failureOf } from '../../test/engines/redis/faults-kit.js';
import { until } from '../../test/servers/lines.js';
import { startMemcached } from '../../test/servers/memcached.js';
import { ask, LOOPBACK } from '../../test/servers/ports.js';
import { type Chapter, naiveCode } from './chapter.js';
import { clientOf, emptied } from './redis.js';

// #region naive
async function lock(port: number, key: string, id: string): Promise<boolean> {
  const answer = await ask(port, `add ${key} 0 30 ${id.length}\r\n${id}\r\n`); // for 30 seconds, if it is not there
  return answer === 'STORED\r\n';
}
// #endregion

/** Two megabytes, of which even the smallest entry takes eight kilobytes: there is room for 254. The oldest goes first. */
const SMALL = ['-m', '2', '-n', '8192', '-o', 'no_modern'];
const MORE_THAN_FIT = 500;
const TTL_MS = 3_000;

export const memcachedEviction: Chapter = {
  word: 'memcached-eviction',
  title: 'Memcached: the cache evicts the lock',
  tries: 'Memcached’s add stores a key only if it is not there, and with an expiry: a lock in one command.',
  code: naiveCode(import.meta.url),

  async naive(scene) {
    await using server = await startMemcached({ args: SMALL });
    const [ada, ben, cache] = scene.actors('Ada', 'Ben', 'memcached');
    await lock(server.port, 'order:42', 'ada');
    ada!.enters('add → STORED, for 30 s');
    await evict(server.port, 'order:42');
    cache!.does('is full: evicts the oldest');
    const taken = await lock(server.port, 'order:42', 'ben');
    ben!.enters('add → STORED');
    scene.broken(
      'The cache needed room, and Ada’s lock was what nobody had used for the longest time.',
      [taken, scene.mostInside],
      [true, 2],
    );
  },

  async holdfast(scene, servers) {
    await using server = await startMemcached({ args: SMALL });
    using resource = clientOf(await emptied(await servers.get('redis')));
    const url = `memcached://${LOOPBACK}:${server.port}`;
    await using adas = new Holdfast(url, { ttl: TTL_MS, label: 'ada' });
    await using bens = new Holdfast(url, { ttl: TTL_MS, label: 'ben' });
    const [ada, ben, cache] = scene.actors('Ada', 'Ben', 'memcached');
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('acquire → a lease');
    let toldAt = Infinity;
    lease.signal.addEventListener('abort', () => {
      toldAt = performance.now();
      ada!.leaves('lease.signal aborts: she stops');
    });
    await evict(server.port, 'holdfast:order:42');
    const evictedAt = performance.now();
    cache!.does('is full: evicts the oldest');
    const next = await bens.mutex('order:42').acquire();
    ben!.enters('acquire → a lease');
    await fence(resource).open('order:42', next);
    const error = await failureOf(fence(resource).open('order:42', lease));
    ada!.does('shows her token: StaleTokenError');
    await until('Ada is told', () => toldAt < Infinity);
    const toldMs = Math.round(toldAt - evictedAt);
    await next.release();
    scene.leavesOpen('Memcached forgot the lock, so for a moment two were inside.', scene.mostInside, 2);
    scene.holds(`Ada was told with her next beat, after ${toldMs} ms.`, toldMs < 10 * TTL_MS);
    scene.holds(
      'The fence had seen Ben’s token, which is larger, and refused Ada’s in the meantime.',
      error instanceof StaleTokenError,
    );
  },
};

/** Stores others until the key is gone: it may be renewed in between, and is the youngest then. */
async function evict(port: number, key: string): Promise<void> {
  const others = Array.from({ length: MORE_THAN_FIT }, (_, at) => `ms other-${at} 1 q\r\nx\r\n`).join('');
  await until('it is evicted', async () => {
    await ask(port, `${others}mn\r\n`);
    // Unlike a get, this does not make it young again.
    return (await ask(port, `me ${key}\r\n`)) === 'EN\r\n';
  });
}
