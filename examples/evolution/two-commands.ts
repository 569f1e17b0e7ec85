import type { Redis } from 'ioredis';
import { LOOPBACK } from '../../test/servers/ports.js';
import { until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { Holder } from './holder.js';
import { clientOf, emptied, heldBack, holdfastOn, TTL_MS } from './redis.js';

// #region naive
async function lock(redis: Redis, key: string): Promise<boolean> {
  if ((await redis.setnx(key, 'locked')) === 0) return false;
  await redis.expire(key, 30); // so that a crash can't keep it for ever
  return true;
}
// #endregion

export const twoCommands: Chapter = {
  word: 'two-commands',
  title: 'SETNX, then EXPIRE',
  tries: 'A holder that crashes must not keep its lock for ever, so the key gets an expiry. With a second command.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using adas = clientOf(server);
    using bens = clientOf(server);
    const [ada, ben] = scene.actors('Ada', 'Ben');
    let reached = false;
    const crashes = (): Promise<never> => {
      reached = true;
      adas.disconnect();
      return new Promise(() => {});
    };
    void lock(heldBack(adas, 'expire', crashes), 'order:42');
    await until('Ada is between her two commands', () => reached);
    ada!.enters('SETNX → 1');
    ada!.leaves('crashes before EXPIRE');
    const taken = await lock(bens, 'order:42');
    ben!.waits('SETNX → 0');
    const expiry = await bens.pttl('order:42');
    ben!.does(`PTTL → ${expiry}: it never expires`);
    scene.broken('Ada is gone, and Ben is refused.', taken, false);
    scene.broken(
      'The key has no expiry. Nobody will get this lock again until somebody deletes it by hand.',
      expiry,
      -1,
    );
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    await using adas = new Holder(`redis://${LOOPBACK}:${server.port}?epochGuard=false`, 'order:42');
    await using bens = holdfastOn(server, 'ben');
    const [ada, ben] = scene.actors('Ada', 'Ben');
    const token = await adas.acquire();
    ada!.enters('acquire → a lease');
    await adas.kill();
    ada!.leaves('her process is killed');
    const killedAt = performance.now();
    ben!.waits('acquire → second in line');
    const lease = await bens.mutex('order:42').acquire();
    const waitedMs = Math.round(performance.now() - killedAt);
    ben!.enters('is granted the lock');
    await lease.release();
    scene.holds(`Ben had the lock ${waitedMs} ms after the crash. The ttl is ${TTL_MS} ms.`, waitedMs < 10 * TTL_MS);
    scene.holds('His token is larger than Ada’s.', lease.token > token);
  },
};
