/** Every client library’s subscriptions come back when a cluster changes under them: else a hand-over would wait for a beat. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { redis } from '../../src/engines/redis/index.js';
import { clusterRealm, shardPrefix } from '../../src/engines/redis/queue/keys.js';
import { Holdfast } from '../../src/index.js';
import { type RedisCluster, slotOf, startCluster } from '../servers/redis-cluster.js';
import { command } from '../servers/resp.js';
import { eventually } from '../servers/wait.js';
import { REDIS_CLIENTS } from './redis-clients.js';

const NAME = 'job';
const SLOT = slotOf(shardPrefix('', clusterRealm(NAME)));

let cluster: RedisCluster;

describe('messages on a cluster', () => {
  beforeAll(async () => {
    cluster = await startCluster();
  });

  afterAll(() => cluster[Symbol.asyncDispose]());

  test.each(REDIS_CLIENTS)('$name: arrive again after a slot has moved and after failovers', async (clients) => {
    const connected = await clients.cluster(cluster.hosts);
    const namespace = clients.name.replaceAll(' ', '-');
    const locks = new Holdfast(redis(connected.client, { epochGuard: false }), { ttl: '20s', namespace });
    try {
      await using _lease = await locks.mutex(NAME).acquire();
      await listens(namespace);
      await cluster.migrateSlot(SLOT);
      await listens(namespace);
      await cluster.failover(SLOT, 'manual');
      await listens(namespace);
      if (clients.waitsForTheDead) return;
      const primary = await cluster.primaryOf(SLOT);
      await cluster.failover(SLOT, 'kill');
      await listens(namespace);
      await primary.restart();
      await cluster.settled();
    } finally {
      await locks.close();
      connected.close();
    }
  });
});

/** For its own slots on the node that has them, or for all on any. The session’s next beat is the latest time for it. */
async function listens(namespace: string): Promise<void> {
  await eventually(`${namespace} listens`, async () => {
    const primary = await cluster.primaryOf(SLOT);
    const awake = cluster.nodes.filter(({ running }) => running);
    const plain = await Promise.all(awake.map(({ port }) => command(port, 'PUBSUB', 'CHANNELS', `${namespace}:*`)));
    const sharded = await command(primary.port, 'PUBSUB', 'SHARDCHANNELS', `${namespace}:*`);
    expect([...plain, sharded].flat()).toHaveLength(1);
  });
}
