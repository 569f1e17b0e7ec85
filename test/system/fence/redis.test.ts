/** Fences on a real Redis, with each client. */
import { createClient } from '@redis/client';
import { Cluster, Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isStale } from '../../../src/core/fence.js';
import { fence, fencedScript } from '../../../src/fence/index.js';
import { ConfigError, Holdfast, StaleTokenError } from '../../../src/index.js';
import { startCluster } from '../../servers/redis-cluster.js';
import { startRedis } from '../../servers/redis.js';
import { seededRandom } from '../../servers/seeded-random.js';
import type { Server } from '../../servers/server.js';

/** Beyond 2^53, where neighbours are the same double. */
const BASE = 2n ** 60n;
/** Tokens of etcd and ZooKeeper begin with one: here they get a digit more on the way. */
const BASES = { 'beyond 2^53': BASE, 'from one digit to two': 1n };

const CLIENTS = {
  ioredis: async (port: number) => {
    const client = new Redis(port, '127.0.0.1');
    return { client, end: () => client.disconnect() };
  },
  'node-redis': async (port: number) => {
    const client = createClient({ socket: { host: '127.0.0.1', port } });
    client.on('error', () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
} as const;

let server: Server;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

describe.each(Object.entries(CLIENTS))('%s', (library, connect) => {
  let connection: Awaited<ReturnType<typeof connect>>;
  beforeAll(async () => {
    connection = await connect(server.port);
  });
  afterAll(() => connection.end());

  const guard = (): ReturnType<typeof fence<Redis>> => fence(connection.client as Redis);

  test.each(Object.entries(BASES))('judges readers and writers by the rule, %s', async (which, base) => {
    const random = seededRandom(11);
    let [maxRead, maxWrite] = [0n, 0n];
    for (let step = 0; step < 200; step += 1) {
      const token = base + BigInt(Math.floor(step / 8 + random() * 6));
      const mode = random() < 0.5 ? 'read' : 'write';
      const stale = isStale({ token, mode }, maxRead, maxWrite);
      const answer = await guard()
        .open(`model-${library}-${which}`, token, { shared: mode === 'read' })
        .then(
          () => undefined,
          (error: StaleTokenError) => error.newest,
        );
      expect(answer).toBe(stale ? (maxRead > maxWrite ? maxRead : maxWrite) : undefined);
      if (stale) continue;
      if (mode === 'write') maxWrite = token;
      else if (token > maxRead) maxRead = token;
    }
  });

  test('an overtaken holder can neither read nor write, nor run a script', async () => {
    const name = `account-${library}`;
    const key = `{${name}}:balance`;
    const old = await guard().open(name, BASE + 1n);
    await old.set(key, '100');
    expect(await old.get(key)).toBe('100');
    expect(await old.get(`${key}-none`)).toBeNull();
    const young = await guard().open(name, BASE + 2n);
    for (const late of [
      () => old.get(key),
      () => old.set(key, '0'),
      () => old.eval(`return redis.call('DEL', KEYS[1])`, [key]),
    ])
      await expect(late()).rejects.toMatchObject({ code: 'HOLDFAST_STALE_TOKEN', token: BASE + 1n, newest: BASE + 2n });
    expect(await young.get(key)).toBe('100');
    await young.set(key, '1', { ttlMs: 60_000 });
    expect(await young.eval(`return redis.call('PTTL', KEYS[1])`, [key])).toBeGreaterThan(0);
    for (const [value, ttlMs] of [
      [undefined, 1],
      [5, 1],
      ['x', 0.5],
      ['x', 0],
      ['x', '1s'],
    ] as [string, number][])
      await expect(young.set(key, value, { ttlMs })).rejects.toMatchObject({ code: 'HOLDFAST_CONFIG' });
    expect(await young.get(key)).toBe('1');
  });

  test('a script sees its own keys and arguments, and its errors stay its own', async () => {
    const open = await guard().open(`script-${library}`, BASE);
    const script = `local sum = 0\nfor _, n in ipairs(ARGV) do sum = sum + n end\nreturn { #KEYS, KEYS[1], sum }`;
    expect(await open.eval(script, ['mine'], ['1', '2', '3'])).toEqual([1, 'mine', 6]);
    expect(await open.eval('return { #KEYS, #ARGV }')).toEqual([0, 0]);
    const mistake = open.eval(`local a = 1\nreturn redis.call('INCR', 'a', 'b')`);
    await expect(mistake).rejects.not.toThrow(StaleTokenError);
    await expect(open.eval(`local a = 1\nlocal b = nil + 1\nreturn b`)).rejects.toThrow(/user_script:2/);
    expect(fencedScript('#!lua flags=allow-stale\nreturn 1')).toMatch(/^#!lua flags=allow-stale\ndo /);
  });

  test('leases: readers read, semaphores are refused', async () => {
    await using locks = new Holdfast('memory:');
    const reader = await locks.rwLock('catalog').read.acquire();
    const open = await guard().open(`catalog-${library}`, reader);
    expect(await open.get('nothing')).toBeNull();
    await expect(open.set('nothing', 'x')).rejects.toThrow(ConfigError);
    const permit = await locks.semaphore('gpu', 2).acquire();
    await expect(guard().open('gpu', permit)).rejects.toThrow(ConfigError);
  });

  test('a script of a read lease can’t write: the server refuses it', async () => {
    const [name, key] = [`read-only-${library}`, `{read-only-${library}}:balance`];
    await (await guard().open(name, BASE)).set(key, '100');
    const reader = await guard().open(name, BASE + 1n, { shared: true });
    const write = `return redis.call('SET', KEYS[1], '0')`;
    for (const script of [write, `#!lua\n${write}`, `#!lua flags=allow-stale\n${write}`])
      await expect(reader.eval(script, [key])).rejects.toMatchObject({
        code: 'HOLDFAST_CONFIG',
        message: expect.stringContaining('read lease') as string,
      });
    for (const read of [
      `return redis.call('GET', KEYS[1])`,
      `#!lua flags=allow-stale\nreturn redis.call('GET', KEYS[1])`,
    ])
      expect(await reader.eval(read, [key])).toBe('100');
    await guard().open(name, BASE + 2n);
    await expect(reader.eval('return 1')).rejects.toThrow(StaleTokenError);
  });

  test('a key that is of another type than is needed is named', async () => {
    const [name, key] = [`types-${library}`, `{types-${library}}:list`];
    const open = await guard().open(name, BASE);
    await open.eval(`return redis.call('RPUSH', KEYS[1], 'x')`, [key]);
    await expect(open.get(key)).rejects.toMatchObject({
      code: 'HOLDFAST_CONFIG',
      message: expect.stringContaining(key) as string,
    });
    const own = fence(connection.client as Redis, { key: () => key });
    await expect(own.open('x', BASE)).rejects.toMatchObject({
      code: 'HOLDFAST_ENGINE',
      retryable: false,
      message: expect.stringContaining(key) as string,
    });
  });

  test('the key of a fence can be chosen', async () => {
    const own = fence(connection.client as Redis, { key: (resource) => `{app}:fence:${resource}-${library}` });
    await own.open('x', BASE);
    expect(
      await own.open('x', BASE).then((open) => open.eval(`return redis.call('EXISTS', '{app}:fence:x-${library}')`)),
    ).toBe(1);
  });
});

/** A cluster takes seconds to start: it is for the matrix. */
test.runIf(process.env['HOLDFAST_MATRIX'] !== undefined)(
  'on a cluster a fence lies beside what it protects',
  async () => {
    await using cluster = await startCluster();
    const client = new Cluster(cluster.hosts.map(({ host, port }) => ({ host, port })));
    try {
      for (const name of ['account:1', 'account:2', 'invoice 7', '💥']) {
        const key = `{${name}}:balance`;
        const old = await fence(client).open(name, BASE);
        await old.set(key, '100');
        const young = await fence(client).open(name, BASE + 1n);
        await expect(old.set(key, '0')).rejects.toThrow(StaleTokenError);
        expect(await young.get(key)).toBe('100');
      }
    } finally {
      client.disconnect();
    }
  },
);
