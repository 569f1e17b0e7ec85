/**
 * A network that loses one packet, or lets one overtake another. Each of these happens to a real Redis; a rejection that
 * nobody handles fails the whole run.
 */
import { describe, expect, test } from 'vitest';
import type { Redis } from 'ioredis';
import { redis as redisEngine } from '../../../src/engines/redis/index.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import { carrying, connect, deserted, failureOf, hearingFrom, queued, renewed, standing, urlOf } from './faults-kit.js';

describe.concurrent('the reply of an enter that got lost', () => {
  test('costs nothing: acquire still gives the lease, and the claim stands once', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    const lock = locks.mutex('job');
    await locks.ready();
    const lost = proxy.loseReplyOf(carrying('enter'));
    const lease = await lock.acquire();
    await lost;
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(await lease.release()).toBe(true);
    expect(await standing(lock)).toEqual({ held: 0, waiting: 0 });
  });

  test('is no refusal: tryAcquire, which asks once, says that it could not ask, and its claim is withdrawn', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    const lock = locks.mutex('job');
    await locks.ready();
    const lost = proxy.loseReplyOf(carrying('enter'));
    expect(await failureOf(lock.tryAcquire())).toBeInstanceOf(EngineError);
    await lost;
    await deserted(lock);
    const lease = await lock.tryAcquire();
    expect(lease?.held).toBe(true);
    await lease?.release();
  });

  test('leaves nothing behind where tryAcquire was refused', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
    const lock = other.mutex('job');
    const lease = await lock.acquire();
    await locks.ready();
    const lost = proxy.loseReplyOf(carrying('enter'));
    expect(await failureOf(locks.mutex('job').tryAcquire())).toBeInstanceOf(EngineError);
    await lost;
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(await locks.mutex('job').tryAcquire()).toBeUndefined();
    await lease.release();
    await deserted(lock);
  });

  test('keeps one place in line, which is served', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
    const lock = other.mutex('job');
    const first = await lock.acquire();
    await locks.ready();
    const lost = proxy.loseReplyOf(carrying('enter'));
    const waiting = locks.mutex('job').acquire();
    await lost;
    await queued(lock, 1);
    await first.release();
    const second = await waiting;
    expect(second.token).toBeGreaterThan(first.token);
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    await second.release();
  });

  test('is an EngineError where no try after it gets through, and the claim is withdrawn as soon as one does', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
    const lock = other.mutex('job');
    await locks.ready();
    const lost = proxy.loseReplyOf(carrying('enter')).then(() => proxy.set({ mode: 'reset' }));
    const failure = failureOf(locks.mutex('job').acquire({ timeout: '300ms' }));
    await lost;
    // The server has granted it, and nobody knows.
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(await failure).toBeInstanceOf(EngineError);
    proxy.set({ mode: 'pass' });
    await deserted(lock);
    const lease = await lock.tryAcquire();
    expect(lease?.held).toBe(true);
    await lease?.release();
  });
});

describe.concurrent('the reply of another step that got lost', () => {
  test('release resolves, the line is left, and whoever waits is served once', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
    const lock = other.mutex('job');
    const first = await locks.mutex('job').acquire();
    const waiting = lock.acquire();
    await queued(lock, 1);
    const lost = proxy.loseReplyOf(carrying('leave'));
    expect(await first.release()).toBe(true);
    await lost;
    const second = await waiting;
    expect(second.token).toBeGreaterThan(first.token);
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    await second.release();
    // The one whose reply was lost goes on as if nothing had been.
    await locks.mutex('job').run((lease) => lease.assertHeld());
  });

  test('a beat: the lease is renewed by the next one and never lost', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    const lease = await locks.mutex('job').acquire();
    await proxy.loseReplyOf(carrying('beat'));
    await renewed(lease);
    expect(lease.state).toBe('held');
    expect(lease.signal.aborted).toBe(false);
    expect(await lease.release()).toBe(true);
  });

  test('an open: the session that nobody knows of blocks nobody, and acquire gives a lease', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port), { ttl: '2s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '2s' });
    // Somebody has to be first: to a server that does not know the script by its hash it is sent twice.
    await other.ready();
    const lost = proxy.loseReplyOf(carrying('open'));
    await locks.mutex('job').run((lease) => lease.assertHeld());
    await lost;
  });
});

describe.concurrent('a step that comes late', () => {
  test('an enter that runs after its leave is found by the next beat and left', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    using slow = connect(proxy.port);
    using direct = connect(server.port);
    const paths = enteringBy(slow, direct);
    await using locks = new Holdfast(redisEngine(paths.client, { epochGuard: false }), { ttl: '3s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '3s' });
    const lock = other.mutex('job');
    await Promise.all([locks.ready(), slow.ping()]);
    // The reply is lost as well: else a late answer would be answered by a leave, and no beat would have to find it.
    const delivered = proxy.loseReplyOf(carrying('enter'));
    proxy.set({ mode: 'freeze' });
    expect(await failureOf(locks.mutex('job').acquire({ timeout: '200ms' }))).toBeInstanceOf(EngineError);
    await expect.poll(() => paths.leaves.length, { timeout: 10_000 }).toBe(1);
    expect(await paths.leaves[0]).toBeDefined();
    expect(await standing(lock)).toEqual({ held: 0, waiting: 0 });
    proxy.set({ mode: 'pass' });
    await delivered;
    // Its session lives and goes on beating, so that nothing but a leave can free the line.
    await deserted(lock);
    const lease = await locks.mutex('job').tryAcquire();
    expect(lease?.held).toBe(true);
    await lease?.release();
  });

  test('a grant that overtakes the answer to its enter counts, and the late answer takes nothing back', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    using client = connect(proxy.port);
    const source = redisEngine(hearingFrom(client, server.port), { epochGuard: false });
    await using locks = new Holdfast(source, { ttl: '6s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
    const lock = other.mutex('job');
    const first = await lock.acquire();
    await locks.ready();
    proxy.set({ mode: 'delay', ms: 500 });
    const waiting = locks.mutex('job').acquire();
    await queued(lock, 1);
    // The answer is still on its way, and stays there until the message has come.
    proxy.set({ mode: 'freeze' });
    await first.release();
    const second = await waiting;
    expect(second.held).toBe(true);
    proxy.set({ mode: 'pass' });
    await renewed(second);
    expect(second.state).toBe('held');
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(await second.release()).toBe(true);
  });
});

describe.concurrent('a message that got lost', () => {
  test('the subscriber was killed right before the release: its waiter is served, long before any ttl', async () => {
    await using server = await startRedis();
    await using first = new Holdfast(urlOf(server.port), { ttl: '10s' });
    await using second = new Holdfast(urlOf(server.port), { ttl: '10s' });
    const lease = await first.mutex('job').acquire();
    const waiting = second.mutex('job').acquire({ timeout: '10s' });
    await queued(first.mutex('job'), 1);
    expect(await command(server.port, 'CLIENT', 'KILL', 'TYPE', 'pubsub')).toBe(2);
    await lease.release();
    await (await waiting).release();
  });

  test.each(['reset', 'freeze'] as const)(
    'the subscriber hears nothing any more (%s): its waiter is served by its next beat',
    async (mode) => {
      await using server = await startRedis();
      await using proxy = await FaultProxy.start(server.port);
      using client = connect(server.port);
      const source = redisEngine(hearingFrom(client, proxy.port), { epochGuard: false });
      await using first = new Holdfast(urlOf(server.port), { ttl: '6s' });
      await using second = new Holdfast(source, { ttl: '6s' });
      const lease = await first.mutex('job').acquire();
      const waiting = second.mutex('job').acquire({ timeout: '12s' });
      await queued(first.mutex('job'), 1);
      proxy.set({ mode });
      await lease.release();
      await (await waiting).release();
      // What closes the instance closes its subscriber, which waits for an answer otherwise.
      proxy.set({ mode: 'pass' });
    },
  );
});

/** A client whose enters take another way than the rest, and the answers to its leaves. */
function enteringBy(slow: Redis, direct: Redis): { readonly client: object; readonly leaves: Promise<unknown>[] } {
  const leaves: Promise<unknown>[] = [];
  const evalsha = (sha1: string, keys: number, ...words: string[]): Promise<unknown> => {
    const answer = (words.includes('enter') ? slow : direct).evalsha(sha1, keys, ...words);
    if (words.includes('leave')) leaves.push(answer);
    return answer;
  };
  const client = {
    evalsha,
    eval: direct.eval.bind(direct),
    duplicate: direct.duplicate.bind(direct),
    disconnect: () => direct.disconnect(),
    subscribe: direct.subscribe.bind(direct),
  };
  return { client, leaves };
}
