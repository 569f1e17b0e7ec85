/** plain and hash on a cluster, behind Sentinel, and with other clients than ioredis. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hash } from '../../../src/engines/redis/slots/hash.js';
import { redis } from '../../../src/engines/redis/index.js';
import { plain } from '../../../src/engines/redis/slots/plain.js';
import { freedChannel, tokenKey } from '../../../src/engines/redis/slots/keys.js';
import { Holdfast, LeaseLostError } from '../../../src/index.js';
import { REDIS_CLIENTS } from '../../matrix/redis-clients.js';
import { startRedis } from '../../servers/redis.js';
import { type RedisCluster, slotOf, startCluster } from '../../servers/redis-cluster.js';
import { startSentinel } from '../../servers/redis-sentinel.js';
import { command, info, type Reply } from '../../servers/resp.js';
import { eventually } from '../../servers/wait.js';
import { lossOf } from './faults-kit.js';
import { locksWithoutPolling } from './slot-kit.js';

const STRATEGIES = ['plain', 'hash'] as const;
/** All of them in the matrix: the others differ from these in what the conformance suite looks at. */
const CLIENTS = REDIS_CLIENTS.filter(
  ({ name }) => process.env['HOLDFAST_MATRIX'] !== undefined || ['a URL', 'node-redis 6'].includes(name),
);
const CROSS = CLIENTS.flatMap((clients) => STRATEGIES.map((strategy) => ({ clients, strategy, client: clients.name })));

/** In braces is what a cluster hashes, if they are in this order. */
const NAMES = ['plain', '{a}b', 'b{a}', 'a}b', 'a{b', '{}a', 'a{}{b}'];

test('what is kept beside a key lives in its slot, and only a brace that ends no hash tag prevents it', () => {
  const alone = NAMES.filter((name) => tokenKey(name) === undefined);
  expect(alone).toEqual(['a}b', '{}a', 'a{}{b}']);
  for (const name of NAMES) {
    for (const beside of [tokenKey(name), freedChannel(name)]) expect(slotOf(beside ?? name), name).toBe(slotOf(name));
  }
});

describe('a cluster', () => {
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startCluster({ replicas: 0 });
  });

  afterAll(() => cluster[Symbol.asyncDispose]());

  test.each(CROSS)('$client, $strategy: a lock of any name is one key in one slot', async ({ clients, strategy }) => {
    const connected = await clients.cluster(cluster.hosts);
    const namespace = `${clients.name}-${strategy}`.replaceAll(' ', '-');
    const source = redis(connected.client, { strategy });
    try {
      await using holder = new Holdfast(source, { ttl: '20s', namespace });
      await using waiter = new Holdfast(source, { ttl: '20s', namespace });
      await Promise.all(
        NAMES.map(async (name) => {
          const lease = await holder.mutex(name).acquire();
          expect(await waiter.mutex(name).tryAcquire(), name).toBeUndefined();
          const waiting = waiter.mutex(name).acquire();
          expect(await lease.release(), name).toBe(true);
          const next = await waiting;
          expect(next.token).toBeGreaterThan(lease.token);
          expect(await next.release(), name).toBe(true);
        }),
      );
      const stats = await Promise.all(cluster.nodes.map(({ port }) => info(port, 'INFO', 'errorstats')));
      for (const errors of stats) expect(errors.get('errorstat_CROSSSLOT')).toBeUndefined();
    } finally {
      connected.close();
    }
  });

  test.each(CROSS)('$client, $strategy: who waits is woken by a message', async ({ clients, strategy }) => {
    const [one, other] = await Promise.all([clients.cluster(cluster.hosts), clients.cluster(cluster.hosts)]);
    const name = `messaged-${strategy}-${clients.name}`.replaceAll(' ', '-');
    try {
      await using holder = new Holdfast(redis(one.client, { strategy, key: (name) => name }), { ttl: '60s' });
      await using waiter = locksWithoutPolling(other.client, { plain, hash }[strategy]);
      const lease = await holder.mutex(name).acquire();
      const waiting = waiter.mutex(name).acquire();
      await eventually('it listens', async () => expect(await channelsOf(cluster, name)).not.toEqual([]));
      await lease.release();
      await (await waiting).release();
    } finally {
      one.close();
      other.close();
    }
  });
});

test.each(CROSS)(
  '$client, $strategy: hands over, holds what others may not have, and is told what is lost',
  async ({ clients, strategy }) => {
    await using server = await startRedis();
    const connected = await clients.single(server.port);
    const source = redis(connected.client, { strategy, key: (name) => name });
    try {
      await using holder = new Holdfast(source, { ttl: '3s' });
      await using waiter = new Holdfast(source, { ttl: '3s' });
      const lease = await holder.mutex('job').acquire();
      expect(await command(server.port, 'SET', 'job', 'theirs', 'NX')).toBeNull();
      const waiting = waiter.mutex('job').acquire();
      expect(await lease.release()).toBe(true);
      const next = await waiting;
      expect(next.token).toBeGreaterThan(lease.token);
      await command(server.port, 'FLUSHALL');
      expect(await lossOf(next)).toBeInstanceOf(LeaseLostError);
    } finally {
      connected.close();
    }
  },
);

test('behind Sentinel a failover is followed: what is held is kept or told, and locks are to be had again', async () => {
  await using sentinel = await startSentinel();
  const hosts = sentinel.hosts.map(({ host, port }) => `${host}:${port}`).join();
  const open = (strategy: string): Holdfast =>
    new Holdfast(`redis+sentinel://${hosts}/${sentinel.name}?strategy=${strategy}`, {
      ttl: '20s',
      namespace: strategy,
    });
  await using plainLocks = open('plain');
  await using hashLocks = open('hash');
  const locks = [plainLocks.mutex('kept'), hashLocks.mutex('kept')];
  const leases = await Promise.all(locks.map((lock) => lock.acquire()));
  const waiting = locks.map((lock) => lock.acquire());
  await eventually('the replicas know the locks', async () => {
    for (const { port } of sentinel.replicas) expect(await command(port, 'DBSIZE')).toBe(4);
  });
  await sentinel.primary.kill();
  await sentinel.settled();
  for (const lease of leases) {
    const { held } = lease;
    expect(await lease.release()).toBe(held);
  }
  for (const next of await Promise.all(waiting)) expect(await next.release()).toBe(true);
});

/** Sharded or not, of any node. */
async function channelsOf({ nodes }: RedisCluster, name: string): Promise<Reply[]> {
  const kinds = ['CHANNELS', 'SHARDCHANNELS'];
  const asked = nodes.flatMap(({ port }) => kinds.map((kind) => command(port, 'PUBSUB', kind, `*${name}*`)));
  return (await Promise.all(asked)).flat();
}
