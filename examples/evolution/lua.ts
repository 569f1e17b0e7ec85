import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { type Chapter, naiveCode } from './chapter.js';
import { lock } from './owned-key.js';
import { clientOf, emptied, heldBack, holdfastOn, isGone } from './redis.js';

// #region naive
const UNLOCK = `
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
  end
  return 0`;

async function unlock(redis: Redis, key: string, id: string): Promise<boolean> {
  return (await redis.eval(UNLOCK, 1, key, id)) === 1;
}
// #endregion

/** A slow machine beats late, and must not lose the lock by that. */
const TTL_MS = 2_000;

export const lua: Chapter = {
  word: 'lua',
  title: 'Look and DEL in one Lua script',
  tries:
    'Redis runs a script as a whole, so nothing comes between the look and the DEL. This is where most tutorials end.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using client = clientOf(server);
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await lock(client, 'order:42', 'ada', 300);
    ada!.enters('SET ada NX PX 300 → OK');
    const adas = heldBack(client, 'eval', async () => {
      await isGone(client, 'order:42');
      await lock(client, 'order:42', 'ben', 30_000);
      ben!.enters('expired: SET ben → OK');
    });
    const deleted = await unlock(adas, 'order:42', 'ada');
    ada!.leaves('is done: EVAL → 0');
    const left = await client.get('order:42');
    scene.holds('Ada’s late unlock deleted nothing: Ben’s lock stands.', [deleted, left], [false, 'ben']);
    scene.leavesOpen('Ada was inside until she was done, and Ben had been in beside her.', scene.mostInside, 2);
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    await using adas = holdfastOn(server, 'ada', TTL_MS);
    await using bens = holdfastOn(server, 'ben');
    const [ada, ben] = scene.actors('Ada', 'Ben');
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters(`acquire, with a ttl of ${TTL_MS} ms`);
    await sleep(1.1 * TTL_MS);
    ada!.does('still works');
    const refused = (await bens.mutex('order:42').tryAcquire()) === undefined;
    ben!.waits('tryAcquire → undefined');
    const released = await lease.release();
    ada!.leaves(`release → ${released}`);
    scene.holds(
      'Ada worked for longer than her ttl. Her beats renewed it, and Ben was refused.',
      [refused, released],
      [true, true],
    );
  },
};
