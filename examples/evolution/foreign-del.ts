import type { Redis } from 'ioredis';
import { LOOPBACK } from '../../test/servers/ports.js';
import { type Chapter, naiveCode } from './chapter.js';
import { Holder } from './holder.js';
import { clientOf, emptied, holdfastOn, isGone } from './redis.js';

// #region naive
async function lock(redis: Redis, key: string, ttlMs: number): Promise<boolean> {
  return (await redis.set(key, 'locked', 'PX', ttlMs, 'NX')) === 'OK'; // one command: take it, with its expiry
}

async function unlock(redis: Redis, key: string): Promise<void> {
  await redis.del(key);
}
// #endregion

export const foreignDel: Chapter = {
  word: 'foreign-del',
  title: 'An expiry, and a DEL that deletes another’s lock',
  tries: 'SET with NX and PX takes the lock and its expiry in one step. Whoever is done deletes the key.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using client = clientOf(server);
    const [ada, ben, cleo] = scene.actors('Ada', 'Ben', 'Cleo');
    await lock(client, 'order:42', 100);
    ada!.enters('SET NX PX 100 → OK');
    ada!.does('works for longer than that');
    await isGone(client, 'order:42');
    const bens = await lock(client, 'order:42', 30_000);
    ben!.enters('expired: SET → OK');
    await unlock(client, 'order:42');
    ada!.leaves('is done: DEL');
    const cleos = await lock(client, 'order:42', 30_000);
    cleo!.enters('SET → OK');
    scene.broken('Ada’s lock expired while she worked, and Ben came in beside her.', bens);
    scene.broken('Ada’s DEL deleted Ben’s lock, and Cleo came in beside him.', cleos);
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    await using adas = new Holder(`redis://${LOOPBACK}:${server.port}?epochGuard=false`, 'order:42');
    await using bens = holdfastOn(server, 'ben');
    await using cleos = holdfastOn(server, 'cleo');
    const [ada, ben, cleo] = scene.actors('Ada', 'Ben', 'Cleo');
    await adas.acquire();
    ada!.enters('acquire → a lease');
    await adas.freeze();
    ada!.freezes('is frozen for longer than the ttl');
    const lease = await bens.mutex('order:42').acquire();
    ben!.enters('is granted the lock');
    adas.thaw();
    const held = await adas.held();
    ada!.leaves(`wakes up: lease.held → ${held}`);
    const released = await adas.release();
    ada!.does(`release → ${released}`);
    const refused = (await cleos.mutex('order:42').tryAcquire()) === undefined;
    cleo!.waits('tryAcquire → undefined');
    scene.holds('Ada knows by her own clock that she has lost the lock, as soon as she runs again.', held, false);
    scene.holds('Her release frees nothing, and says so.', released, false);
    scene.holds('Ben’s lock stands: Cleo is refused.', [refused, lease.held], [true, true]);
    await lease.release();
  },
};
