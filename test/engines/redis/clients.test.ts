/** Clients of the user's own, with settings that change where keys and messages go. */
import { Cluster, Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { redis } from '../../../src/engines/redis/index.js';
import { Holdfast } from '../../../src/index.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { type RedisCluster, startCluster } from '../../servers/redis-cluster.js';
import { command, RedisConnection } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';

let server: Server;
let cluster: RedisCluster;

beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedis(), startCluster({ replicas: 0 })]);
});

afterAll(() => Promise.all([server.stop(), cluster[Symbol.asyncDispose]()]));

test('all keys have the prefix of an ioredis client, and messages arrive', async () => {
  using client = disconnecting(new Redis({ port: server.port, keyPrefix: 'app:' }));
  await handsOver(client.it);
  const keys = await command(server.port, 'KEYS', 'app:*');
  expect(keys).not.toEqual([]);
  expect(await command(server.port, 'KEYS', '*')).toEqual(keys);
});

test.each([{ keyPrefix: 'app:' }, { redisOptions: { keyPrefix: 'app:' } }, { keyPrefix: '{app}:' }])(
  'so it is on a cluster: %o',
  async (options) => {
    using client = disconnecting(new Cluster([...cluster.hosts], options));
    await handsOver(client.it);
    const keys = await Promise.all(cluster.nodes.map(({ port }) => command(port, 'KEYS', '*')));
    expect(keys.flat()).not.toEqual([]);
    for (const key of keys.flat()) expect(key).toMatch(/^(app|\{app\}):holdfast:/);
  },
);

test('a URL with the number of a database keeps to it', async () => {
  const url = `redis://${LOOPBACK}:${server.port}/3?epochGuard=false`;
  await using locks = new Holdfast(url, { namespace: 'three' });
  await using lease = await locks.mutex('job').acquire();
  expect(lease.held).toBe(true);
  expect(await command(server.port, 'KEYS', 'three:*')).toEqual([]);
  using connection = await RedisConnection.open(server.port);
  await connection.send('SELECT', 3);
  expect(await connection.send('KEYS', 'three:*')).toHaveLength(3);
});

/** By a message: with a ttl of a minute the next beat would bring it after 16 seconds at the earliest. */
async function handsOver(client: object): Promise<void> {
  const source = redis(client, { epochGuard: false });
  await using holder = new Holdfast(source, { ttl: '60s' });
  await using waiter = new Holdfast(source, { ttl: '60s' });
  const lease = await holder.mutex('job').acquire();
  const next = waiter.mutex('job').acquire();
  await eventually('somebody waits', async () => {
    const { claims } = await holder.mutex('job').inspect();
    expect(claims.map(({ state }) => state)).toEqual(['held', 'waiting']);
  });
  const start = performance.now();
  await lease.release();
  await (await next).release();
  expect(performance.now() - start).toBeLessThan(8_000);
}

function disconnecting<T extends { disconnect(): void }>(it: T): Disposable & { readonly it: T } {
  return { it, [Symbol.dispose]: () => it.disconnect() };
}
