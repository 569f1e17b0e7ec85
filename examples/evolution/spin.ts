import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { queued, until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { clientOf, emptied, heldBack, holdfastOn } from './redis.js';

// #region naive
async function lock(redis: Redis, key: string): Promise<void> {
  while ((await redis.setnx(key, 'locked')) === 0) await sleep(100); // gentle: ask ten times a second
}
// #endregion

const ROUNDS = 3;

export const spin: Chapter = {
  word: 'spin',
  title: 'A loop that sleeps between its tries',
  tries: 'A loop instead of the recursion, and a pause in it, so that Redis is left in peace.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    using client = clientOf(server);
    const [ada, ben, cleo] = scene.actors('Ada', 'Ben', 'Cleo');
    let asked = 0;
    let mayAsk = true;
    // Ben asks again only when Cleo has come: that is what his sleep does to him.
    const bens = heldBack(client, 'setnx', async () => {
      await until('Ben wakes up', () => mayAsk);
      asked += 1;
    });
    await lock(client, 'order:42');
    ada!.enters('SETNX → 1');
    const waits = lock(bens, 'order:42');
    await until('Ben has asked', () => asked === 1);
    ben!.waits('SETNX → 0, sleeps 100 ms');
    let overtaken = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      mayAsk = false;
      const holder = round === 0 ? ada! : cleo!;
      await client.del('order:42');
      holder.leaves('DEL');
      overtaken += await client.setnx('order:42', 'locked');
      cleo!.enters('comes, SETNX → 1');
      const before = asked;
      mayAsk = true;
      await until('Ben has asked again', () => asked > before);
      ben!.does('SETNX → 0, sleeps 100 ms');
    }
    await client.del('order:42');
    const freeAt = performance.now();
    cleo!.leaves('DEL');
    await waits;
    const freeMs = Math.round(performance.now() - freeAt);
    ben!.enters('SETNX → 1');
    scene.broken(
      `Cleo came ${ROUNDS} times after Ben, and was inside ${overtaken} times before him.`,
      overtaken,
      ROUNDS,
    );
    scene.broken(`When nobody came, the lock lay free for ${freeMs} ms while Ben slept.`, freeMs > 0);
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    await using adas = holdfastOn(server, 'ada');
    await using bens = holdfastOn(server, 'ben');
    await using cleos = holdfastOn(server, 'cleo');
    const [ada, ben, cleo] = scene.actors('Ada', 'Ben', 'Cleo');
    const order: string[] = [];
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('acquire → a lease');
    let freeAt = Infinity;
    let freeMs = Infinity;
    const bensRun = bens.mutex('order:42').run(() => {
      freeMs = Math.round(performance.now() - freeAt);
      order.push('Ben');
      ben!.enters('is told that it is his');
      ben!.leaves('release');
    });
    await queued(adas.mutex('order:42'), 1);
    ben!.waits('acquire → second in line');
    const cleosRun = cleos.mutex('order:42').run(() => {
      order.push('Cleo');
      cleo!.enters('is told that it is hers');
    });
    await queued(adas.mutex('order:42'), 2);
    cleo!.waits('acquire → third in line');
    ada!.leaves('release');
    freeAt = performance.now();
    await Promise.all([lease.release(), bensRun, cleosRun]);
    scene.holds('Ben came before Cleo, and was inside before her. Nobody jumps the line.', order, ['Ben', 'Cleo']);
    scene.holds(`From Ada’s release to Ben’s grant it took ${freeMs} ms.`, freeMs < 1_000);
  },
};
