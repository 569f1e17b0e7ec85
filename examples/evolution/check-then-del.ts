import type { Redis } from 'ioredis';
import { carrying } from '../../test/engines/redis/faults-kit.js';
import { FaultProxy } from '../../test/servers/fault-proxy.js';
import { type Chapter, naiveCode } from './chapter.js';
import { lock } from './owned-key.js';
import { clientOf, emptied, heldBack, holdfastOn, isGone, TTL_MS } from './redis.js';

// #region naive
async function unlock(redis: Redis, key: string, id: string): Promise<void> {
  if ((await redis.get(key)) === id) await redis.del(key); // only if it is mine
}
// #endregion

export const checkThenDel: Chapter = {
  word: 'check-then-del',
  title: 'Look whose it is, then DEL',
  tries: 'Each holder writes an id of its own into the key, and deletes the key only if it still finds that id.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using client = clientOf(server);
    const [ada, ben, cleo] = scene.actors('Ada', 'Ben', 'Cleo');
    await lock(client, 'order:42', 'ada', TTL_MS);
    ada!.enters(`SET ada NX PX ${TTL_MS} → OK`);
    const adas = heldBack(client, 'del', async () => {
      ada!.does('is done: GET → ada, that is mine');
      await isGone(client, 'order:42');
      await lock(client, 'order:42', 'ben', 30_000);
      ben!.enters('expired: SET ben → OK');
    });
    await unlock(adas, 'order:42', 'ada');
    ada!.leaves('DEL');
    const left = await client.get('order:42');
    const cleos = await lock(client, 'order:42', 'cleo', 30_000);
    cleo!.enters('SET cleo → OK');
    scene.broken('Between Ada’s look and her DEL the key became Ben’s. She deleted it.', left, null);
    scene.broken('Cleo came in beside Ben.', cleos);
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    await using wire = await FaultProxy.start(server.port);
    await using adas = holdfastOn(wire, 'ada');
    await using bens = holdfastOn(server, 'ben');
    await using cleos = holdfastOn(server, 'cleo');
    const [ada, ben, cleo] = scene.actors('Ada', 'Ben', 'Cleo');
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('acquire → a lease');
    const arrived = wire.loseReplyOf(carrying('leave'));
    wire.set({ mode: 'freeze' });
    const released = lease.release();
    ada!.leaves('release, stuck on its way');
    const bensLease = await bens.mutex('order:42').acquire();
    ben!.enters('her ttl is over: is granted the lock');
    wire.set({ mode: 'pass' });
    await arrived;
    ada!.does('her release arrives');
    const refused = (await cleos.mutex('order:42').tryAcquire()) === undefined;
    cleo!.waits('tryAcquire → undefined');
    scene.holds(
      'A release looks and deletes in one script, for one claim. Ada’s came late, and Ben’s lock stands.',
      [refused, bensLease.held],
      [true, true],
    );
    await bensLease.release();
    await released;
  },
};
