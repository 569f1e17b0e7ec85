import { Cluster, Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { FaultProxy } from './fault-proxy.js';
import { LOOPBACK } from './ports.js';
import { startRedis } from './redis.js';
import { routeThrough } from './routes.js';

/** Whether a new client gets there. */
async function reaches(make: () => Redis | Cluster): Promise<boolean> {
  const client = make();
  client.on('error', () => {});
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    client.disconnect();
  }
}

test('a client that was given the address of a server gets there through the proxy', async () => {
  await using redis = await startRedis({ args: ['--cluster-enabled', 'yes'] });
  await using proxy = await FaultProxy.start(redis.port);
  const address = { host: LOOPBACK, port: redis.port };
  const single = (): Redis => new Redis({ ...address, lazyConnect: true, retryStrategy: null });
  const cluster = (): Cluster => new Cluster([address], { lazyConnect: true, clusterRetryStrategy: () => null });
  expect(await reaches(single)).toBe(true);

  routeThrough({ [redis.port]: proxy.port });
  expect(await reaches(single)).toBe(true);
  proxy.set({ mode: 'reset' });
  expect(await reaches(single)).toBe(false);
  expect(await reaches(cluster)).toBe(false);
});
