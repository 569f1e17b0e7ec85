/**
 * A server that hangs, dies, forgets, is full, or has a clock that jumps. A rejection that nobody handles fails the
 * whole run.
 */
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { redis as redisEngine } from '../../../src/engines/redis/index.js';
import { ClosedError, EngineError, Holdfast, type Lease, LeaseLostError } from '../../../src/index.js';
import { Actor } from '../../../src/conformance/protocol.js';
import { CLOCK_SHIM_NEEDS, clockShim } from '../../servers/clock-shim.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { isFree } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { command, info } from '../../servers/resp.js';
import { connect, deserted, failureOf, lossOf, queued, renewed, standing, until, urlOf } from './faults-kit.js';

const HOUR_MS = 3_600_000;
const KEYS = ['sessions', 'state', 'order'].map((key) => `holdfast:{0}:${key}`);
const PERSISTENT = ['--appendonly', 'yes', '--appendfsync', 'always'];

describe.concurrent('a server that hangs', () => {
  test('costs a lease that outlives it nothing', async () => {
    await using server = await startRedis();
    // A beat is missed after two thirds of it at the latest: then a good two seconds are left for the next.
    await using locks = new Holdfast(urlOf(server.port), { ttl: '12s' });
    const lease = await locks.mutex('job').acquire();
    await server.pause();
    await until('a beat is missed', () => lease.state === 'jeopardy');
    server.resume();
    await until('the doubt is over', () => lease.state === 'held');
    expect(lease.signal.aborted).toBe(false);
    expect(await lease.release()).toBe(true);
  });

  test('is waited for no longer than the validity: jeopardy, then loss, and held is false in time', async () => {
    // Jeopardy lasts for a fifth of it at least, and has to be seen.
    const ttl = 6_000;
    await using server = await startRedis();
    await using locks = new Holdfast(urlOf(server.port), { ttl });
    await using other = new Holdfast(urlOf(server.port), { ttl });
    const lease = await locks.mutex('job').acquire();
    await other.ready();
    await server.pause();
    // No beat is answered after this, so that the server may free the lock one ttl later.
    const lastHeldAt = watch(lease, performance.now() + ttl);
    await until('a beat is missed', () => lease.state === 'jeopardy');
    expect(await lossOf(lease)).toMatchObject({ code: 'HOLDFAST_LOST', reason: 'expired' });
    expect(lease.state).toBe('lost');
    expect(await lastHeldAt).toBe('held was false in time');
    server.resume();
    await locks.mutex('job').run(({ token }) => expect(token).toBeGreaterThan(lease.token));
    await other.mutex('job').run(({ token }) => expect(token).toBeGreaterThan(lease.token));
  });

  test('is told from one that is busy: acquire rejects with EngineError, and works again afterwards', async () => {
    await using server = await startRedis();
    await using known = new Holdfast(urlOf(server.port), { ttl: '2s' });
    await using stranger = new Holdfast(urlOf(server.port), { ttl: '2s' });
    await known.ready();
    await server.pause();
    const acquires = [known, stranger].map((locks) => locks.mutex('job').acquire({ timeout: '400ms' }));
    for (const failure of await Promise.all(acquires.map(failureOf))) expect(failure).toBeInstanceOf(EngineError);
    expect(await failureOf(known.mutex('job').tryAcquire())).toBeInstanceOf(EngineError);
    server.resume();
    // What was sent to it meanwhile is carried out now; nothing of it stays.
    await deserted(known.mutex('job'));
    for (const locks of [known, stranger]) await locks.mutex('job').run((lease) => lease.assertHeld());
  });

  test('keeps close() from nothing, and what it could not be told is free after the ttl', async () => {
    await using server = await startRedis();
    const locks = new Holdfast(urlOf(server.port), { ttl: '1500ms' });
    const lease = await locks.mutex('job').acquire();
    const waiting = failureOf(locks.mutex('job').acquire());
    await server.pause();
    await locks.close();
    expect(lease.state).not.toBe('held');
    expect(await waiting).toBeInstanceOf(ClosedError);
    server.resume();
    await using other = new Holdfast(urlOf(server.port), { ttl: '1500ms' });
    await other.mutex('job').run(({ token }) => expect(token).toBeGreaterThan(lease.token));
  });
});

describe.concurrent('a server that has just been started', () => {
  test('grants nothing for one ttl, and names nobody as the holder meanwhile', async () => {
    await using server = await startRedis();
    await using locks = new Holdfast(urlOf(server.port, { epochGuard: true }), { ttl: '6s' });
    await locks.ready();
    const guarded = { code: 'HOLDFAST_ENGINE', retryable: true, retryAfterMs: expect.any(Number) as number };
    await expect(locks.mutex('job').tryAcquire()).rejects.toMatchObject(guarded);
    await expect(locks.mutex('job').acquire({ timeout: '1s' })).rejects.toMatchObject(guarded);
    const lease = await locks.mutex('job').acquire();
    expect(await uptimeMs(server.port)).toBeGreaterThanOrEqual(6_000);
    await lease.release();
  });
});

describe.concurrent('a server that is killed and restarted', () => {
  test('empty: nobody is granted while the old holder believes in its lease, and tokens grow', async () => {
    const ttl = 1_500;
    using clock = await clockShim();
    await using server = await startRedis({ env: clock?.env ?? {} });
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port, { epochGuard: true }), { ttl });
    await using other = new Holdfast(urlOf(server.port, { epochGuard: true }), { ttl });
    const first = await locks.mutex('job').acquire();
    await renewed(first);
    // The holder hears nothing of it, so it believes for as long as it may.
    proxy.set({ mode: 'freeze' });
    await server.kill();
    await until('its port is free', () => isFree(server.port));
    // Servers count their uptime in seconds of the clock: one that starts late in a second is soon called a second old.
    clock?.jumpWall((1_750 - (Date.now() % 1_000)) % 1_000);
    await server.start();
    await until('the server calls itself a second old', async () => (await uptimeMs(server.port)) >= 1_000);
    const second = await other.mutex('job').acquire();
    expect(first.held).toBe(false);
    expect(second.token).toBeGreaterThan(first.token);
    proxy.set({ mode: 'pass' });
    expect(await lossOf(first)).toBeInstanceOf(LeaseLostError);
    const next = locks.mutex('job').acquire();
    await queued(other.mutex('job'), 1);
    await second.release();
    expect((await next).token).toBeGreaterThan(second.token);
  });

  test('with its memory: the holder keeps its lease, waiters their places, and nobody is granted until the guard ends', async () => {
    // The guard lasts for as long, and all that is seen of it comes after a restart and a beat.
    const ttl = 8_000;
    await using server = await startRedis({ args: PERSISTENT });
    const fleet = Array.from({ length: 4 }, () => new Holdfast(urlOf(server.port, { epochGuard: true }), { ttl }));
    await using first = fleet[0]!;
    await using second = fleet[1]!;
    await using third = fleet[2]!;
    await using fourth = fleet[3]!;
    const lease = await first.mutex('job').acquire();
    const secondServed = second.mutex('job').acquire();
    await queued(first.mutex('job'), 1);
    const thirdServed = third.mutex('job').acquire();
    await queued(first.mutex('job'), 2);
    const claims = await first.mutex('job').inspect();
    await renewed(lease);
    await server.kill();
    const killedAt = performance.now();
    await server.restart();
    await renewed(lease);
    expect(lease.state).toBe('held');
    expect(await first.mutex('job').inspect()).toEqual(claims);
    // Free, but a claim on it may be what the restart has lost.
    await expect(fourth.mutex('free').tryAcquire()).rejects.toMatchObject({
      retryAfterMs: expect.any(Number) as number,
    });
    expect(await lease.release()).toBe(true);
    // In the order of their places: it would wait for ever if the other one were first.
    const next = await secondServed;
    // Timers may be early by a millisecond, and clocks are read one after the other.
    expect(performance.now() - killedAt).toBeGreaterThan(ttl - 10);
    await next.release();
    const last = await thirdServed;
    await last.release();
    const newest = await fourth.mutex('job').acquire();
    const tokens = [lease, next, last, newest].map(({ token }) => token);
    expect(tokens).toEqual(tokens.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(new Set(tokens).size).toBe(4);
  });
});

describe.concurrent('a server that is tampered with', () => {
  test.each(['SCRIPT FLUSH', 'CLIENT KILL TYPE normal', 'CLIENT KILL TYPE pubsub'])(
    '%s costs neither the holder nor those who wait',
    async (words) => {
      await using server = await startRedis();
      await using locks = new Holdfast(urlOf(server.port), { ttl: '6s' });
      await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
      const first = await locks.mutex('job').acquire();
      const waiting = other.mutex('job').acquire();
      await queued(locks.mutex('job'), 1);
      await command(server.port, ...words.split(' '));
      await renewed(first);
      expect(first.state).toBe('held');
      await until('the waiter stands where it stood', async () => {
        const { held, waiting } = await standing(locks.mutex('job'));
        return held === 1 && waiting === 1;
      });
      expect(await first.release()).toBe(true);
      const second = await waiting;
      expect(second.token).toBeGreaterThan(first.token);
      expect(await second.release()).toBe(true);
      await deserted(locks.mutex('job'));
    },
  );

  test.each(['FLUSHALL', ...KEYS.map((key) => `DEL ${key}`)])(
    '%s: the holder is told, and those who wait are served',
    async (words) => {
      await using server = await startRedis();
      await using locks = new Holdfast(urlOf(server.port), { ttl: '4s' });
      await using other = new Holdfast(urlOf(server.port), { ttl: '4s' });
      await using third = new Holdfast(urlOf(server.port), { ttl: '4s' });
      const first = await locks.mutex('job').acquire();
      const waiting = [other, third].map((waiter) => waiter.mutex('job').run(({ token }) => token));
      await queued(locks.mutex('job'), 2);
      await command(server.port, ...words.split(' '));
      const loss = await lossOf(first);
      expect(loss).toBeInstanceOf(LeaseLostError);
      expect(loss).toMatchObject({ reason: 'session', lock: 'job' });
      expect(first.held).toBe(false);
      expect(await first.release()).toBe(false);
      for (const token of await Promise.all(waiting)) expect(token).toBeGreaterThan(first.token);
      await locks.mutex('job').run((lease) => lease.assertHeld());
      await deserted(locks.mutex('job'));
    },
  );

  test.each(KEYS)('DEL %s: nobody is granted while the old holder believes in its lease', async (key) => {
    const ttl = 3_000;
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy.port, { epochGuard: true }), { ttl });
    await using other = new Holdfast(urlOf(server.port, { epochGuard: true }), { ttl });
    const first = await locks.mutex('job').acquire();
    const waiting = other.mutex('job').acquire();
    await queued(other.mutex('job'), 1);
    // Old enough that the guard after its start is over, however the server counts its seconds.
    await until('the server is older than any guard', async () => (await uptimeMs(server.port)) > ttl + 2_000);
    await renewed(first);
    proxy.set({ mode: 'freeze' });
    await command(server.port, 'DEL', key);
    const second = await waiting;
    expect(first.held).toBe(false);
    expect(second.token).toBeGreaterThan(first.token);
    proxy.set({ mode: 'pass' });
    expect(await lossOf(first)).toBeInstanceOf(LeaseLostError);
    await second.release();
  });
});

describe.concurrent('a server whose wall clock jumps', () => {
  test('an hour ahead: the holder is told, those who wait are served; tokens grow, also two hours back', async ({
    skip,
  }) => {
    using clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using server = await startRedis({ env: clock.env });
    await using locks = new Holdfast(urlOf(server.port), { ttl: '4s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '4s' });
    const first = await locks.mutex('job').acquire();
    const waiting = other.mutex('job').acquire();
    await queued(locks.mutex('job'), 1);
    clock.jumpWall(HOUR_MS);
    expect(await lossOf(first)).toMatchObject({ code: 'HOLDFAST_LOST', reason: 'session' });
    const second = await waiting;
    expect(second.token).toBeGreaterThan(first.token);
    clock.jumpWall(-2 * HOUR_MS);
    const next = locks.mutex('job').acquire();
    await queued(other.mutex('job'), 1);
    await renewed(second);
    expect(await second.release()).toBe(true);
    const third = await next;
    expect(third.token).toBeGreaterThan(second.token);
    await renewed(third);
    expect(await third.release()).toBe(true);
  });

  test('back: a dead session does not live for longer than its ttl', async ({ skip }) => {
    using clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using server = await startRedis({ env: clock.env });
    using client = connect(server.port);
    const source = redisEngine(client, { epochGuard: false });
    await using engine = await source.connect({ namespace: 'holdfast', clock: systemClock });
    // It never beats: it is dead from here on.
    const dead = await Actor.open(engine, { id: 'dead-session', realm: '', ttlMs: 1_500, label: 'dead' }, 'dead');
    await dead.hold({ name: 'job' });
    clock.jumpWall(-2 * HOUR_MS);
    await using locks = new Holdfast(urlOf(server.port), { ttl: '1500ms' });
    await (await locks.mutex('job').acquire({ timeout: '12s' })).release();
  });

  test('back: no guard lasts for longer than one ttl because of it', async ({ skip }) => {
    using clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using server = await startRedis({ env: clock.env });
    await using locks = new Holdfast(urlOf(server.port, { epochGuard: true }), { ttl: '1500ms' });
    const first = await locks.mutex('job').acquire();
    await first.release();
    clock.jumpWall(-2 * HOUR_MS);
    const second = await locks.mutex('job').acquire({ timeout: '12s' });
    expect(second.token).toBeGreaterThan(first.token);
  });
});

describe.concurrent('a server that is full', () => {
  test('renews, releases and hands over; what it must refuse says why and is not done by half', async () => {
    await using server = await startRedis({ args: ['--maxmemory-policy', 'noeviction'] });
    await using locks = new Holdfast(urlOf(server.port), { ttl: '5s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '5s' });
    await using third = new Holdfast(urlOf(server.port), { ttl: '5s' });
    await using stranger = new Holdfast(urlOf(server.port), { ttl: '5s' });
    const first = await locks.mutex('job').acquire();
    const waiting = other.mutex('job').acquire();
    await queued(locks.mutex('job'), 1);
    await third.ready();
    await fill(server.port);
    await renewed(first);
    for (const refused of [third, stranger]) {
      const failure = await failureOf(refused.mutex('another').acquire({ timeout: '1500ms' }));
      expect(failure).toBeInstanceOf(EngineError);
      expect(inspect(failure)).toMatch(/OOM|maxmemory/);
    }
    expect(await first.release()).toBe(true);
    const second = await waiting;
    expect(second.token).toBeGreaterThan(first.token);
    await renewed(second);
    expect(await second.release()).toBe(true);
    await command(server.port, 'CONFIG', 'SET', 'maxmemory', '0');
    for (const name of ['job', 'another']) expect(await standing(locks.mutex(name))).toEqual({ held: 0, waiting: 0 });
    for (const instance of [third, stranger]) await instance.mutex('another').run((lease) => lease.assertHeld());
  });
});

/** Looks at `held` until it is false; says whether it was ever true after that time. */
async function watch(lease: Lease, end: number): Promise<string> {
  let late = false;
  await until(`the lease on ${lease.name} is over`, () => {
    const now = performance.now();
    const { held } = lease;
    late ||= held && now > end;
    return !held;
  });
  return late ? 'held was true too late' : 'held was false in time';
}

/** As the server counts it: up to a second too much. */
async function uptimeMs(port: number): Promise<number> {
  return Number((await info(port, 'INFO', 'server')).get('uptime_in_seconds')) * 1_000;
}

/** Other data takes all the memory that it may use. */
async function fill(port: number): Promise<void> {
  await command(port, 'SET', 'other-data', 'x'.repeat(4_000_000));
  await command(port, 'CONFIG', 'SET', 'maxmemory', '2mb');
  await expect(command(port, 'SET', 'more', 'x')).rejects.toThrow('OOM');
}
