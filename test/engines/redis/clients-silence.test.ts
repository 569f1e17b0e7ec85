/** A subscriber that hears nothing does not know whether it is still subscribed: it has to ask, and to connect anew. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { createClient } from '@redis/client';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { redis } from '../../../src/engines/redis/index.js';
import { Holdfast } from '../../../src/index.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import { eventually } from '../../servers/wait.js';

test('a subscriber of node-redis leaves a server that hangs, and is there again when it goes on', async () => {
  await using server = await startRedis();
  const client = createClient({ url: `redis://127.0.0.1:${server.port}` });
  client.on('error', () => {});
  await client.connect();
  const leaves = new Promise((resolve) => {
    const duplicate = client.duplicate.bind(client);
    client.duplicate = ((...args: Parameters<typeof duplicate>) => {
      const subscriber = duplicate(...args);
      subscriber.once('reconnecting', resolve);
      return subscriber;
    }) as typeof client.duplicate;
  });
  const locks = new Holdfast(redis(client, { epochGuard: false }), { ttl: '60s' });
  await locks.ready();
  const subscribers = async (): Promise<readonly string[]> =>
    [...String(await command(server.port, 'CLIENT', 'LIST', 'TYPE', 'pubsub')).matchAll(/\bid=(\d+)/g)].map(
      (match) => match[1]!,
    );
  const before = await subscribers();
  expect(before).toHaveLength(1);
  await server.pause();
  // After some seconds of silence it gives the connection up.
  await leaves;
  server.resume();
  await eventually('another connection listens', async () => {
    const after = await subscribers();
    expect(after).toHaveLength(1);
    expect(after).not.toEqual(before);
  });
  await locks.close();
  client.destroy();
});

/** How many commands a client of ioredis keeps for a connection that there is not yet. */
function kept(client: Redis): number {
  const queues = [Reflect.get(client, 'offlineQueue'), Reflect.get(client, 'commandQueue')] as { length?: number }[];
  return queues.reduce((sum, queue) => sum + (queue?.length ?? 0), 0);
}

test('a balancer without a backend, which takes connections and closes them, fills no queue of the subscriber', async () => {
  const balancer = createServer((socket) => socket.on('error', () => {}).destroy());
  balancer.listen(0, '127.0.0.1');
  await once(balancer, 'listening');
  const client = new Redis({ port: (balancer.address() as AddressInfo).port, maxRetriesPerRequest: 0 });
  client.on('error', () => {});
  const duplicate = client.duplicate.bind(client);
  let subscriber: Redis | undefined;
  let attempts = 0;
  client.duplicate = (...args) => {
    subscriber = duplicate(...args);
    subscriber.on('reconnecting', () => (attempts += 1));
    return subscriber;
  };
  const locks = new Holdfast(redis(client), { ttl: '60s' });
  const refused = locks.mutex('x').acquire({ timeout: '60s' });
  refused.catch(() => {});
  // The client would queue a CLIENT SETINFO for each of them.
  await eventually('it has tried often', async () => expect(attempts).toBeGreaterThan(7));
  expect(kept(subscriber!)).toBeLessThan(3);
  await locks.close();
  await expect(refused).rejects.toThrow();
  client.disconnect();
  balancer.close();
});
