import { Holdfast } from '../../src/index.js';
import type { ZooKeeperClient } from '../../src/engines/zookeeper/client/client.js';
import { clientOf, urlOf } from '../../test/engines/zookeeper/kit.js';
import { queued, until } from '../../test/servers/lines.js';
import type { Server } from '../../test/servers/server.js';
import { figureOf } from '../../test/servers/zookeeper.js';
import { type Chapter, naiveCode } from './chapter.js';

// #region naive
async function lock(zookeeper: ZooKeeperClient, path: string): Promise<void> {
  for (;;) {
    try {
      await zookeeper.create(path, { mode: 'ephemeral' }); // goes with its session: a crash frees it
      return;
    } catch {
      await deletionOf(zookeeper, path); // everybody watches the same node
    }
  }
}

function deletionOf(zookeeper: ZooKeeperClient, path: string): Promise<void> {
  return new Promise((resolve) => {
    zookeeper.getData(path, resolve).catch(() => resolve()); // gone already
  });
}
// #endregion

const WAITERS = 20;

export const zookeeperHerd: Chapter = {
  word: 'zookeeper-herd',
  title: 'ZooKeeper: everybody watches the same node',
  tries:
    'An ephemeral node is the lock: a crash ends the session, and the node with it. Whoever finds it taken watches it.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await servers.get('zookeeper');
    const [crowd] = scene.actors(`${WAITERS} waiters`);
    const holder = await clientOf(server);
    const clients = await Promise.all(Array.from({ length: WAITERS }, () => clientOf(server)));
    const watchesBefore = await figureOf(server.port, 'zk_watch_count');
    const before = await fired(server);
    await lock(holder, '/order');
    const inside: ZooKeeperClient[] = [holder];
    const waits = clients.map((client) => lock(client, '/order').then(() => inside.push(client)));
    for (let left = WAITERS; left > 0; left -= 1) {
      await until('all watch', async () => (await figureOf(server.port, 'zk_watch_count')) === watchesBefore + left);
      const woken = await fired(server);
      await inside.at(-1)!.delete('/order');
      await until('one is inside', () => inside.length === WAITERS + 2 - left);
      const step = `one release wakes ${(await fired(server)) - woken}, of which 1 gets in`;
      if (left > WAITERS - 3) crowd!.waits(step);
    }
    await Promise.all(waits);
    const woken = (await fired(server)) - before;
    crowd!.does(`… after ${WAITERS} releases: ${woken} were woken`);
    await Promise.all([holder, ...clients].map((client) => client.close()));
    scene.broken(
      `${WAITERS} hand-overs fired ${woken} watches. With every waiter more, each release costs more.`,
      woken,
      (WAITERS * (WAITERS + 1)) / 2,
    );
  },

  async holdfast(scene, servers) {
    const server = await servers.get('zookeeper');
    const [crowd] = scene.actors(`${WAITERS} waiters`);
    const fleet = Array.from({ length: WAITERS + 1 }, () => new Holdfast(urlOf(server), { ttl: '20s' }));
    const [first, ...others] = fleet.map((locks) => locks.mutex('order:42'));
    const lease = await first!.acquire();
    const waits: Promise<void>[] = [];
    for (const other of others) {
      waits.push(other.run(() => {}));
      await queued(first!, waits.length);
    }
    crowd!.waits('each watches the one before it');
    const before = await fired(server);
    await lease.release();
    await Promise.all(waits);
    const woken = (await fired(server)) - before;
    crowd!.does(`after ${WAITERS} releases: ${woken} were woken`);
    await Promise.all(fleet.map((locks) => locks.close()));
    scene.holds(`${WAITERS} hand-overs fired ${woken} watches: one for each.`, woken, WAITERS);
  },
};

/** Watches that the server has fired because a node was deleted, since its start. */
function fired(server: Server): Promise<number> {
  return figureOf(server.port, 'zk_sum_node_deleted_watch_count');
}
