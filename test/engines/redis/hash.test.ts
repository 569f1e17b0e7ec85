/**
 * hash: our lock and Redisson's exclude and wake each other. Redisson itself is Java; node-redisson stands for it, which
 * has its scripts, its watchdog and its messages.
 *
 * They differ in one thing, and there we follow Redisson: the channel of a key that has a brace somewhere but at its
 * beginning. For `a{b}` Redisson says `redisson_lock__channel:a{b}`, node-redisson `redisson_lock__channel:{a{b}}`.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hash } from '../../../src/engines/redis/slots/hash.js';
import { EngineError, type Holdfast, LeaseLostError } from '../../../src/index.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { connect, failureOf, lossOf, until } from './faults-kit.js';
import {
  countTogether,
  exists,
  listenersOf,
  locksWithoutPolling,
  scriptCalls,
  type SlotOptions,
  slotLocks,
} from './slot-kit.js';
import { connectRedisson, PEERS } from './slot-peers.mjs';

/** So long that nobody is woken by the end of it. */
const LONG_MS = 600_000;

let server: Server;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(() => server.stop());

function open(options: SlotOptions = {}): Holdfast {
  return slotLocks(server.port, { strategy: 'hash', ...options });
}

function redisSays(...words: readonly (string | number)[]): ReturnType<typeof command> {
  return command(server.port, ...words);
}

async function somebodyListens(key: string): Promise<void> {
  const channel = `redisson_lock__channel:{${key}}`;
  await until(`somebody listens for ${key}`, async () => (await listenersOf(server.port, channel)) > 0);
}

describe.concurrent('the layout', () => {
  test('is a hash with one field, which says who and counts one, however often we enter', async () => {
    await using locks = open();
    await locks.mutex('laid-out').run(async () => {
      await locks.mutex('laid-out').run(async () => {
        expect(await redisSays('HGETALL', 'laid-out')).toEqual([expect.stringMatching(/^[0-9a-f]{32}:\d+$/), '1']);
      });
    });
    expect(await exists(server.port, 'laid-out')).toBe(false);
  });

  test('has a ttl that is renewed when a third of it is over', async () => {
    const ttlMs = 12_000;
    await using locks = open({ ttl: ttlMs });
    await using _lease = await locks.mutex('renewed').acquire();
    const left: number[] = [];
    await until('it is renewed', async () => {
      left.push(Number(await redisSays('PTTL', 'renewed')));
      return left.at(-1)! > left.at(-2)!;
    });
    expect(left[0]).toBeLessThanOrEqual(ttlMs);
    // Two thirds, but for a machine that is busy with something else.
    expect(Math.min(...left)).toBeGreaterThan(ttlMs / 3);
  });

  test('a key that is no hash is an error that says what to do', async () => {
    await using locks = open();
    await redisSays('SET', 'text', 'theirs');
    const failure = await failureOf(locks.mutex('text').acquire());
    expect(failure).toBeInstanceOf(EngineError);
    expect(failure).toMatchObject({ retryable: false, message: expect.stringMatching(/text.*'plain'/) as string });
    expect(await redisSays('GET', 'text')).toBe('theirs');
  });

  test.each([
    ['plain', 'redisson_lock__channel:{plain}'],
    ['orders{eu}', 'redisson_lock__channel:orders{eu}'],
    ['{eu}orders', 'redisson_lock__channel:{eu}orders'],
  ])('a release of %s is told on Redisson’s channel %s', async (key, channel) => {
    using client = connect(server.port);
    const heard: string[] = [];
    client.on('message', (_, text: string) => heard.push(text));
    await client.subscribe(channel);
    await using locks = open();
    await locks.mutex(key).run(() => {});
    // What was published before a subscription comes before its confirmation.
    await client.subscribe('another');
    expect(heard).toEqual(['0']);
  });
});

describe.concurrent('node-redisson', () => {
  test('is excluded by us, and we by it', async () => {
    await using peer = PEERS['node-redisson'](server.port, LONG_MS);
    await using locks = open();
    const lock = locks.mutex('both');
    const lease = await lock.acquire();
    expect(await peer.tryLock('both')).toBeUndefined();
    expect(await lease.release()).toBe(true);
    const unlock = await peer.tryLock('both');
    expect(unlock).toBeDefined();
    expect(await lock.tryAcquire()).toBeUndefined();
    await unlock?.();
    expect(await (await lock.acquire()).release()).toBe(true);
  });

  test('is woken by our release: its next look would be minutes later', async () => {
    await using peer = PEERS['node-redisson'](server.port, LONG_MS);
    await using locks = open({ ttl: LONG_MS });
    const lease = await locks.mutex('wakes-them').acquire();
    const waiting = peer.lock('wakes-them');
    await somebodyListens('wakes-them');
    await lease.release();
    await (
      await waiting
    )();
  });

  test('wakes us by its unlock: without a message we would not ask again today', async () => {
    await using peer = PEERS['node-redisson'](server.port, LONG_MS);
    using client = connect(server.port);
    await using locks = locksWithoutPolling(client, hash);
    const unlock = await peer.lock('wakes-us');
    const waiting = locks.mutex('wakes-us').acquire();
    await somebodyListens('wakes-us');
    await unlock();
    expect(await (await waiting).release()).toBe(true);
  });

  test('who entered twice excludes us until it has left twice', async () => {
    await using redisson = connectRedisson(server.port, LONG_MS);
    await using locks = open();
    const lock = redisson.getLock('twice', 'one-thread');
    await lock.lock();
    await lock.lock();
    expect(await redisSays('HVALS', 'twice')).toEqual(['2']);
    const waiting = locks.mutex('twice').acquire();
    await lock.unlock();
    expect(await redisSays('HVALS', 'twice')).toEqual(['1']);
    expect(await locks.mutex('twice').tryAcquire()).toBeUndefined();
    await lock.unlock();
    expect(await (await waiting).release()).toBe(true);
  });

  test('who takes our lock away by force: we are told with the next beat', async () => {
    await using redisson = connectRedisson(server.port, LONG_MS);
    await using locks = open({ ttl: '1500ms' });
    const lease = await locks.mutex('forced').acquire();
    expect(await redisson.getLock('forced').forceUnlock()).toBe(true);
    expect(await lossOf(lease)).toBeInstanceOf(LeaseLostError);
    expect(await lease.release()).toBe(false);
  });

  test('who unlocks what is ours is refused, and we keep it', async () => {
    await using redisson = connectRedisson(server.port, LONG_MS);
    await using locks = open();
    const lease = await locks.mutex('ours').acquire();
    await expect(redisson.getLock('ours').unlock()).rejects.toThrow(/not locked by current client/);
    expect(await lease.release()).toBe(true);
  });

  test('with a brace in the key it tells it on another channel than Redisson, and we find out by asking', async () => {
    await using peer = PEERS['node-redisson'](server.port, LONG_MS);
    await using locks = open();
    const unlock = await peer.lock('shop{eu}');
    const waiting = locks.mutex('shop{eu}').acquire();
    const before = await scriptCalls(server.port);
    await until('it asks', async () => (await scriptCalls(server.port)) > before);
    await unlock();
    expect(await (await waiting).release()).toBe(true);
  });
});

test('one who waits for one of us is woken by a message', async () => {
  using client = connect(server.port);
  await using holder = open({ ttl: LONG_MS });
  await using waiter = locksWithoutPolling(client, hash);
  const lease = await holder.mutex('messaged').acquire();
  const waiting = waiter.mutex('messaged').acquire();
  await somebodyListens('messaged');
  await lease.release();
  await (await waiting).release();
});

test('tokens grow: after a release, an expiry, and without their memory', async () => {
  await using locks = open();
  const tokens: bigint[] = [];
  for (const end of ['release', 'expiry', 'forgotten', 'release']) {
    const lease = await locks.mutex('grows').acquire();
    tokens.push(lease.token);
    if (end === 'expiry') await redisSays('PEXPIRE', 'grows', 0);
    if (end === 'forgotten') await redisSays('DEL', 'holdfast_token:{grows}');
    expect(await lease.release()).toBe(end !== 'expiry');
  }
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
});

test('processes of both libraries count in one file, and none of them is overtaken', async () => {
  const kinds = ['hash', 'node-redisson', 'hash', 'node-redisson'] as const;
  // A waiter of node-redisson that misses a message sleeps until the ttl it was told is over.
  const work = { port: server.port, ttlMs: 3_000, key: 'counted', times: 20 };
  expect(await countTogether(kinds, work, () => work.key)).toBe(kinds.length * work.times);
});
