import v8 from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Redis } from 'ioredis';
import { redis } from '../../src/engines/redis/index.js';
import { Holdfast } from '../../src/index.js';
import { queued, until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { clientOf, countRequests, emptied, heldBack, holdfastOn } from './redis.js';
import { about } from './scene.js';

// #region naive
async function lock(redis: Redis, key: string): Promise<void> {
  const taken = await redis.setnx(key, 'locked');
  if (taken === 0) await lock(redis, key); // somebody has it: try again
}
// #endregion

/** How often Ben asks before Ada lets go. */
const TRIES = 5_000;

export const recursion: Chapter = {
  word: 'recursion',
  title: 'SETNX, and again by recursion',
  tries:
    'The first lock of every tutorial: SETNX takes the key if nobody has it. If somebody has, the function calls itself.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using adas = clientOf(server);
    using bens = clientOf(server);
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await lock(adas, 'order:42');
    ada!.enters('SETNX → 1');

    let calls = 0;
    const before = heapAfterCollection();
    const waits = lock(
      heldBack(bens, 'setnx', () => (calls += 1)),
      'order:42',
    );
    ben!.waits('SETNX → 0, calls itself');
    await until('Ben has asked often enough', () => calls >= TRIES);
    const grown = heapAfterCollection() - before;
    const depth = calls;
    ben!.does(`… ${about(depth)} calls deep`);
    await adas.del('order:42');
    ada!.leaves('DEL');
    await waits;
    ben!.enters('SETNX → 1, and all calls return');

    scene.broken(
      `To wait for one lock, Ben sent ${about(calls)} requests, as fast as the network goes.`,
      calls > TRIES,
    );
    scene.broken(`None of his calls had returned: they kept ${about(grown / 1024)} kB of memory.`, grown > 100 * TRIES);
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    using bensClient = clientOf(server);
    const sent = countRequests(bensClient);
    await using adas = holdfastOn(server, 'ada');
    await using bens = new Holdfast(redis(bensClient, { epochGuard: false }), { label: 'ben' });
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await bens.mutex('another').run(() => {}); // now he has a session, as any process that works has
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('acquire → a lease');
    const before = sent.requests;
    const waits = bens.mutex('order:42').acquire();
    await queued(adas.mutex('order:42'), 1);
    ben!.waits('acquire → second in line');
    ada!.leaves('release');
    await lease.release();
    const next = await waits;
    ben!.enters('is told that it is his');
    const requests = sent.requests - before;
    await next.release();
    scene.holds('Ben sent 1 request. He stands in line, and Redis tells him when the lock is his.', requests, 1);
  },
};

/** What is still referred to. */
function heapAfterCollection(): number {
  v8.setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  return process.memoryUsage().heapUsed;
}
