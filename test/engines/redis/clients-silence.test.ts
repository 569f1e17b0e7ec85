/** A subscriber that hears nothing does not know whether it is still subscribed: it has to ask, and to connect anew. */
import { createClient } from '@redis/client';
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
