import { randomUUID } from 'node:crypto';
import { threadId } from 'node:worker_threads';
import type { Redis } from 'ioredis';
import { redis } from '../../src/engines/redis/index.js';
import { Holdfast } from '../../src/index.js';
import { until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { lock as lockPlain } from './owned-key.js';
import { clientOf, countRequests, emptied } from './redis.js';

// #region naive
const OWNER = `${randomUUID()}:${threadId}`; // this process, this thread

const LOCK = `
  if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  end
  return 0`;

async function lock(redis: Redis, key: string, ttlMs: number): Promise<number> {
  return (await redis.eval(LOCK, 1, key, OWNER, ttlMs)) as number; // how often we are inside; 0: another is
}
// #endregion

export const reentrant: Chapter = {
  word: 'reentrant',
  title: 'A hash that counts, so that a holder may enter again',
  tries:
    'A function inside the lock calls one that takes the same lock. Redisson keeps a hash for that: owner → how often.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using client = clientOf(server);
    const [first, second] = scene.actors('Request 1', 'Request 2, of the same process');
    await lockPlain(client, 'plain', 'us', 30_000);
    const again = await lockPlain(client, 'plain', 'us', 30_000);
    const outer = await lock(client, 'order:42', 30_000);
    first!.enters(`EVAL → ${outer}`);
    const inner = await lock(client, 'order:42', 30_000);
    first!.does(`inner function: EVAL → ${inner}`);
    const stranger = await lock(client, 'order:42', 30_000);
    second!.enters(`EVAL → ${stranger}`);
    scene.holds(
      'SET NX refuses the inner function, which would wait for itself for ever. The hash lets it in.',
      [again, inner],
      [false, 2],
    );
    scene.broken(
      'The hash lets Request 2 in, too. A Node.js process has one thread for all of its requests.',
      stranger,
      3,
    );
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    using client = clientOf(server);
    const sent = countRequests(client);
    await using locks = new Holdfast(redis(client, { epochGuard: false }));
    const [first, second] = scene.actors('Request 1', 'Request 2, of the same process');
    const lock = locks.mutex('order:42');
    let requests = -1;
    let sameToken = false;
    let secondWaits = false;
    const one = lock.run(async (outer) => {
      first!.enters('run');
      const before = sent.requests;
      await lock.run((inner) => {
        sameToken = inner.token === outer.token;
        first!.does('run inside the run');
      });
      requests = sent.requests - before;
      await until('Request 2 waits', () => secondWaits);
      first!.leaves('both runs end');
    });
    await until('Request 1 was inside again', () => requests >= 0);
    const other = lock.run(() => second!.enters('run'));
    second!.waits('run → waits');
    secondWaits = true;
    await Promise.all([one, other]);
    scene.holds('The inner run is inside at once: 0 requests, the same token.', [requests, sameToken], [0, true]);
    scene.holds(
      'What a run calls is inside. Another request of the same process is not, and waits.',
      scene.mostInside,
      1,
    );
  },
};
