/** What ioredis does to its subscribers when the network comes and goes, and what must not come of it. */
import { Cluster } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Holdfast, type HoldfastOptions } from '../../../src/index.js';
import { redis } from '../../../src/engines/redis/index.js';
import { type RedisCluster, startCluster } from '../../servers/redis-cluster.js';
import { command } from '../../servers/resp.js';
import { waitFor } from '../../servers/wait.js';
import { queued, until } from './faults-kit.js';

/** What of ioredis shows whether it has got stuck. */
type Subscriber = Pick<Cluster, 'status' | 'once' | 'disconnect'> & {
  readonly shardedSubscribers: { readonly isResetting: boolean };
};

/**
 * The client connects anew while it makes its subscribers' connections. It stops these, which keeps the promise that it
 * waits for from ever settling: it subscribes to nothing any more.
 */
async function strand(subscriber: Subscriber): Promise<void> {
  const stranded = (): boolean => subscriber.status === 'ready' && subscriber.shardedSubscribers.isResetting;
  await until('the subscriber is stranded', async () => {
    subscriber.once('+subscriber', () => setImmediate(() => subscriber.disconnect(true)));
    subscriber.disconnect(true);
    await waitFor(() => subscriber.status === 'ready', 2_000);
    // It may only be at work.
    return stranded() && !(await waitFor(() => !stranded(), 3_000));
  });
}

let cluster: RedisCluster;

beforeAll(async () => {
  cluster = await startCluster();
});

afterAll(() => cluster[Symbol.asyncDispose]());

/** A cluster client, and the subscribers that are made of it. */
function watched(): { client: Cluster; subscribers: Subscriber[] } {
  const client = new Cluster([...cluster.hosts]);
  client.on('error', () => {});
  const subscribers: Subscriber[] = [];
  const duplicate = client.duplicate.bind(client);
  client.duplicate = (...args) => {
    const made = duplicate(...args);
    subscribers.push(made as unknown as Subscriber);
    return made;
  };
  return { client, subscribers };
}

function stranger(options: HoldfastOptions): Holdfast {
  const hosts = cluster.hosts.map(({ host, port }) => `${host}:${port}`).join();
  return new Holdfast(`redis+cluster://${hosts}?epochGuard=false`, options);
}

test('a cluster client whose subscribers are stuck for ever gets new ones, and nobody stays deaf', async () => {
  const { client, subscribers } = watched();
  const options = { ttl: '60s', namespace: 'stranded' } as const;
  await using holder = stranger(options);
  try {
    await using waiter = new Holdfast(redis(client, { epochGuard: false }), options);
    const lease = await holder.mutex('job').acquire();
    const next = waiter.mutex('job').acquire();
    await queued(holder.mutex('job'), 1);
    await strand(subscribers[0]!);
    // Other shards, each of which needs a session, and an inbox for it.
    for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) await waiter.mutex(name).run(() => {});
    expect(subscribers).toHaveLength(2);
    expect(['ready', 'reconnecting']).not.toContain(subscribers[0]!.status);
    // Whoever had an inbox before hears again: the next beat comes 16 seconds after the first at the earliest.
    const released = performance.now();
    await lease.release();
    await (await next).release();
    expect(performance.now() - released).toBeLessThan(2_000);
  } finally {
    client.disconnect();
  }
});

test('a subscriber that is stuck while nobody new listens is replaced: beats notice that nobody hears', async () => {
  const { client, subscribers } = watched();
  const options = { ttl: '3s', namespace: 'unheard' } as const;
  await using holder = stranger(options);
  try {
    await using waiter = new Holdfast(redis(client, { epochGuard: false }), options);
    const lease = await holder.mutex('job').acquire();
    const next = waiter.mutex('job').acquire();
    await queued(holder.mutex('job'), 1);
    await strand(subscribers[0]!);
    await until('the waiter has another subscriber', async () => subscribers.length === 2);
    await until('it hears', async () => {
      const inboxes = (await Promise.all(
        cluster.nodes.map(({ port }) => command(port, 'PUBSUB', 'SHARDCHANNELS', 'unheard:*')),
      )) as unknown[][];
      return inboxes.flat().length === 2;
    });
    await lease.release();
    await (await next).release();
  } finally {
    client.disconnect();
  }
});
