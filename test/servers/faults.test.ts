/** Faults that other tests rely on: each of them happens to a real server, and ends. */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { CLOCK_SHIM_NEEDS, clockShim } from './clock-shim.js';
import { FaultProxy } from './fault-proxy.js';
import { startMemcached } from './memcached.js';
import { ask, isFree } from './ports.js';
import { startRedis } from './redis.js';
import { command, RedisConnection } from './resp.js';
import { seededRandom } from './seeded-random.js';
import type { Server } from './server.js';

const PING = 'PING\r\n';
const PONG = '+PONG\r\n';
/** How long a test looks whether nothing comes. */
const SILENCE_MS = 150;
/** For what comes at once, but for a machine that has much else to do. */
const SOON = 30_000;

describe('a fault proxy', () => {
  let redis: Server;

  beforeAll(async () => {
    redis = await startRedis();
  });

  afterAll(() => redis.stop());

  beforeEach(() => command(redis.port, 'FLUSHALL'));

  test('passes everything through, however large', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    const value = 'x'.repeat(1_000_000);
    expect(await command(proxy.port, 'SET', 'a', value)).toBe('OK');
    expect(await command(proxy.port, 'GET', 'a')).toBe(value);
  });

  test('delays both directions and keeps the order', async () => {
    await using proxy = await FaultProxy.start(redis.port, { seed: 7 });
    using connection = await RedisConnection.open(proxy.port);
    proxy.set({ mode: 'delay', ms: 40, jitterMs: 20 });
    const begun = performance.now();
    const replies: unknown[] = [];
    const sent = Array.from({ length: 5 }, async () => replies.push(await connection.send('INCR', 'n')));
    await Promise.all(sent);
    // Timers may be early by a millisecond.
    expect(performance.now() - begun).toBeGreaterThanOrEqual(2 * (40 - 20) - 2);
    expect(replies).toEqual([1, 2, 3, 4, 5]);
  });

  test('has the same jitter for the same seed', () => {
    expect(fiveOf(7)).toEqual(fiveOf(7));
    expect(fiveOf(7)).not.toEqual(fiveOf(8));
    expect(fiveOf(7).every((number) => number >= 0 && number < 1)).toBe(true);
  });

  test('freezes open and new connections, and loses nothing', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    using connection = await RedisConnection.open(proxy.port);
    expect(await connection.send('PING')).toBe('PONG');
    proxy.set({ mode: 'freeze' });
    const reply = connection.send('INCR', 'n');
    await expect(ask(proxy.port, PING, SILENCE_MS)).rejects.toThrow('no answer');
    expect(await command(redis.port, 'GET', 'n')).toBeNull();
    proxy.heal();
    expect(await reply).toBe(1);
  });

  test('lets nobody know that the other has gone while it is frozen', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    const connection = await RedisConnection.open(proxy.port);
    await connection.send('CLIENT', 'SETNAME', 'leaver');
    proxy.set({ mode: 'freeze' });
    connection[Symbol.dispose]();
    await expect(ask(proxy.port, PING, SILENCE_MS)).rejects.toThrow('no answer');
    expect(await command(redis.port, 'CLIENT', 'LIST')).toContain('name=leaver');
    proxy.heal();
    await vi.waitFor(
      async () => expect(await command(redis.port, 'CLIENT', 'LIST')).not.toContain('name=leaver'),
      SOON,
    );
  });

  test('loses requests, which have no effect then', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    using connection = await RedisConnection.open(proxy.port);
    proxy.set({ mode: 'lose', lose: 'requests' });
    const reply = settled(connection.send('INCR', 'n'));
    await expect(ask(proxy.port, PING, SILENCE_MS)).rejects.toThrow('no answer');
    proxy.heal();
    expect(await reply).toContain('ECONNRESET');
    expect(await command(proxy.port, 'GET', 'n')).toBeNull();
  });

  test('loses replies, whose requests have their effect', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    using connection = await RedisConnection.open(proxy.port);
    proxy.set({ mode: 'lose', lose: 'replies' });
    const reply = settled(connection.send('INCR', 'n'));
    await vi.waitFor(async () => expect(await command(redis.port, 'GET', 'n')).toBe('1'), SOON);
    await expect(ask(proxy.port, PING, SILENCE_MS)).rejects.toThrow('no answer');
    proxy.heal();
    expect(await reply).toContain('ECONNRESET');
    expect(await ask(proxy.port, PING)).toBe(PONG);
  });

  test.each([
    { mode: 'reset', seen: 'ECONNRESET' },
    { mode: 'cut', seen: 'closed the connection' },
  ] as const)('ends open and new connections: $mode', async ({ mode, seen }) => {
    await using proxy = await FaultProxy.start(redis.port);
    using connection = await RedisConnection.open(proxy.port);
    expect(await connection.send('PING')).toBe('PONG');
    // Blocks in the server, so that the fault finds it without a reply.
    const reply = settled(connection.send('BLPOP', 'nothing', 0));
    proxy.set({ mode });
    expect(await reply).toContain(seen);
    await expect(ask(proxy.port, PING)).rejects.toThrow();
    proxy.heal();
    expect(await ask(proxy.port, PING)).toBe(PONG);
  });

  test('loses the reply of exactly one request, which the server has carried out', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    using chosen = await RedisConnection.open(proxy.port);
    using other = await RedisConnection.open(proxy.port);
    const lost = proxy.loseReplyOf((request) => request.includes('chosen'));
    expect(await chosen.send('INCR', 'before')).toBe(1);
    const reply = settled(chosen.send('INCR', 'chosen'));
    await lost;
    expect(await command(redis.port, 'GET', 'chosen')).toBe('1');
    expect(await reply).toContain('ECONNRESET');
    expect(await other.send('INCR', 'chosen')).toBe(2);
    expect(await command(proxy.port, 'INCR', 'chosen')).toBe(3);
  });

  test('loses a reply although earlier ones are still due, and all requests are carried out', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    using connection = await RedisConnection.open(proxy.port);
    proxy.set({ mode: 'freeze' });
    const lost = proxy.loseReplyOf((request) => request.includes('chosen'));
    const replies = ['first', 'second', 'chosen', 'last'].map((key) => settled(connection.send('INCR', key)));
    proxy.set({ mode: 'pass' });
    await lost;
    expect(await command(redis.port, 'MGET', 'first', 'second', 'chosen')).toEqual(['1', '1', '1']);
    expect((await Promise.all(replies)).at(2)).toContain('ECONNRESET');
  });

  test('says when there is no reply to lose', async () => {
    await using proxy = await FaultProxy.start(redis.port);
    const unmet = settled(proxy.loseReplyOf(() => true));
    proxy.heal();
    expect(await unmet).toContain('before such a request came');

    const unanswered = settled(proxy.loseReplyOf((request) => request.includes('BLPOP')));
    const reply = settled(command(proxy.port, 'BLPOP', 'nothing', 0));
    await vi.waitFor(
      async () => expect(await command(redis.port, 'INFO', 'clients')).toContain('blocked_clients:1'),
      SOON,
    );
    await redis.restart();
    expect(await unanswered).toContain('ended before it answered');
    expect(await reply).toContain('ECONNRESET');
  });

  test('leaves neither its port nor a connection behind', async () => {
    const proxy = await FaultProxy.start(redis.port);
    using connection = await RedisConnection.open(proxy.port);
    expect(await connection.send('CLIENT', 'SETNAME', 'left')).toBe('OK');
    await proxy[Symbol.asyncDispose]();
    expect(await isFree(proxy.port)).toBe(true);
    await vi.waitFor(async () => expect(await command(redis.port, 'CLIENT', 'LIST')).not.toContain('name=left'), SOON);
  });
});

describe('a clock shim', () => {
  const NO_SHIM = `no clock shim: it needs ${CLOCK_SHIM_NEEDS}`;

  test('lets the wall clock of a Redis jump, and its keys expire with it', async ({ skip }) => {
    using clock = (await clockShim()) ?? skip(NO_SHIM);
    await using redis = await startRedis({ env: clock.env });
    expect(Math.abs(await aheadMs(redis))).toBeLessThan(5_000);
    await command(redis.port, 'SET', 'a', 1, 'PX', 20_000);
    clock.jumpWall(-30_000);
    expect(Math.abs((await aheadMs(redis)) + 30_000)).toBeLessThan(5_000);
    expect(Number(await command(redis.port, 'PTTL', 'a'))).toBeGreaterThan(40_000);
    clock.jumpWall(60_000);
    expect(Math.abs((await aheadMs(redis)) - 30_000)).toBeLessThan(5_000);
    expect(await command(redis.port, 'GET', 'a')).toBeNull();
  });

  test('lets the monotonic clock of a memcached jump, and only that', async ({ skip }) => {
    using clock = (await clockShim()) ?? skip(NO_SHIM);
    await using memcached = await startMemcached({ env: clock.env });
    expect(await ask(memcached.port, 'set a 0 20 1\r\n1\r\n')).toBe('STORED\r\n');
    const ahead = await memcachedAheadMs(memcached);
    clock.jumpMonotonic(30_000);
    await vi.waitFor(async () => expect(await ask(memcached.port, 'get a\r\n')).toBe('END\r\n'), SOON);
    expect(Math.abs((await memcachedAheadMs(memcached)) - ahead - 30_000)).toBeLessThan(5_000);
  });

  test('is built once for all who want it at the same time, or not where there is no compiler', async ({ skip }) => {
    const scratch = await mkdtemp(join(tmpdir(), 'holdfast-faults-test-'));
    try {
      const library = join(scratch, 'shim.so');
      vi.stubEnv('PATH', scratch);
      expect(await clockShim({ library })).toBeUndefined();
      vi.unstubAllEnvs();
      const clocks = await Promise.all(Array.from({ length: 3 }, () => clockShim({ library })));
      skip(clocks.includes(undefined), NO_SHIM);
      for (const clock of clocks) clock?.[Symbol.dispose]();
      expect(await readdir(scratch)).toEqual(['shim.so']);
    } finally {
      vi.unstubAllEnvs();
      await rm(scratch, { recursive: true });
    }
  });
});

/** What it says once it is settled: an error's message, or the reply. Nobody has to be waiting when it rejects. */
function settled(promise: Promise<unknown>): Promise<string> {
  return promise.then(String, (error: unknown) => (error instanceof Error ? error.message : String(error)));
}

function fiveOf(seed: number): number[] {
  return Array.from({ length: 5 }, seededRandom(seed));
}

async function aheadMs({ port }: Server): Promise<number> {
  const time = await command(port, 'TIME');
  return Array.isArray(time) ? Number(time[0]) * 1_000 + Number(time[1]) / 1_000 - Date.now() : Number.NaN;
}

/** It adds its monotonic clock to the time of its start. */
async function memcachedAheadMs({ port }: Server): Promise<number> {
  const seconds = /^STAT time (\d+)/m.exec(await ask(port, 'stats\r\n'))?.[1];
  return Number(seconds) * 1_000 - Date.now();
}
