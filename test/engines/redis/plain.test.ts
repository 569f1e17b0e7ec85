/** plain: our lock and anybody's `SET key … NX PX` exclude each other, and what happens to such a key. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { redis } from '../../../src/engines/redis/index.js';
import { plain } from '../../../src/engines/redis/slots/plain.js';
import { freedChannel, tokenKey } from '../../../src/engines/redis/slots/keys.js';
import { type Duration, EngineError, Holdfast, LeaseLostError, UnsupportedError } from '../../../src/index.js';
import { CLOCK_SHIM_NEEDS, clockShim } from '../../servers/clock-shim.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { connect, failureOf, lossOf, renewed, until } from './faults-kit.js';
import {
  countTogether,
  exists,
  listenersOf,
  locksWithoutPolling,
  scriptCalls,
  type SlotOptions,
  slotLocks,
  startWorker,
} from './slot-kit.js';
import { PEERS } from './slot-peers.mjs';

let server: Server;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(() => server.stop());

function open(options: SlotOptions = {}): Holdfast {
  return slotLocks(server.port, { strategy: 'plain', ...options });
}

function redisSays(...words: readonly (string | number)[]): ReturnType<typeof command> {
  return command(server.port, ...words);
}

describe.concurrent('a lock that somebody set by hand', () => {
  test('excludes us until it is deleted, and then it is ours', async () => {
    await using locks = open();
    expect(await redisSays('SET', 'foreign', 'theirs', 'NX', 'PX', 60_000)).toBe('OK');
    expect(await locks.mutex('foreign').tryAcquire()).toBeUndefined();
    const waiting = locks.mutex('foreign').acquire();
    expect(await redisSays('GET', 'foreign')).toBe('theirs');
    await redisSays('DEL', 'foreign');
    await using lease = await waiting;
    expect(lease.held).toBe(true);
    expect(await redisSays('SET', 'foreign', 'theirs', 'NX', 'PX', 60_000)).toBeNull();
    expect(await lease.release()).toBe(true);
    expect(await redisSays('SET', 'foreign', 'theirs', 'NX', 'PX', 60_000)).toBe('OK');
  });

  test('is ours when it expires', async () => {
    await using locks = open();
    expect(await redisSays('SET', 'expiring', 'theirs', 'NX', 'PX', 300)).toBe('OK');
    await using lease = await locks.mutex('expiring').acquire();
    expect(lease.held).toBe(true);
  });

  test('without a ttl excludes us until it is deleted', async () => {
    await using locks = open();
    await redisSays('SET', 'endless', 'theirs', 'NX');
    const waiting = locks.mutex('endless').acquire();
    const asked = await scriptCalls(server.port);
    await until('it has asked again and again', async () => (await scriptCalls(server.port)) > asked + 5);
    expect(await redisSays('GET', 'endless')).toBe('theirs');
    await redisSays('DEL', 'endless');
    await (await waiting).release();
  });

  test('in place of ours is left alone by our release, which says so', async () => {
    await using locks = open({ ttl: '60s' });
    const lease = await locks.mutex('replaced').acquire();
    await redisSays('SET', 'replaced', 'theirs', 'PX', 60_000);
    expect(await lease.release()).toBe(false);
    expect(await redisSays('GET', 'replaced')).toBe('theirs');
  });

  test('in place of ours is left alone, and its holder is told', async () => {
    await using locks = open({ ttl: '1500ms' });
    const lease = await locks.mutex('stolen').acquire();
    await redisSays('SET', 'stolen', 'theirs', 'PX', 60_000);
    expect(await lossOf(lease)).toBeInstanceOf(LeaseLostError);
    expect(await lease.release()).toBe(false);
    expect(await redisSays('GET', 'stolen')).toBe('theirs');
  });

  test('that is no lock of this kind is an error that says what to do', async () => {
    await using locks = open();
    await redisSays('HSET', 'hashed', 'uuid:1', 1);
    const failure = await failureOf(locks.mutex('hashed').acquire());
    expect(failure).toBeInstanceOf(EngineError);
    expect(failure).toMatchObject({ retryable: false, message: expect.stringMatching(/hashed.*'hash'/) as string });
    expect(await redisSays('HGETALL', 'hashed')).toEqual(['uuid:1', '1']);
  });
});

describe.concurrent('the key', () => {
  test('is the namespace and the name, and its value the claim and the token', async () => {
    await using locks = new Holdfast(`redis://${LOOPBACK}:${server.port}?strategy=plain`, { namespace: 'shop' });
    await using _lease = await locks.mutex('order:42').acquire();
    expect(await redisSays('GET', 'shop:order:42')).toMatch(/^[0-9a-f]{32}-\d+:\d+$/);
  });

  test('is what the user says', async () => {
    await using locks = open({ key: (name) => `lock/${name}` });
    await using _lease = await locks.mutex('named').acquire();
    expect(await exists(server.port, 'lock/named')).toBe(true);
  });

  test('has a time to live, and nothing but the last token is left of it', async () => {
    await using locks = open();
    const lease = await locks.mutex('left').acquire();
    expect(await redisSays('PTTL', 'left')).toBeGreaterThan(0);
    await lease.release();
    expect(await redisSays('KEYS', '*left*')).toEqual([tokenKey('left')]);
    expect(await redisSays('PTTL', tokenKey('left')!)).toBeGreaterThan(0);
  });
});

test('what one key can’t do is refused when the object is made', async () => {
  for (const strategy of ['plain', 'hash'] as const) {
    await using locks = open({ strategy });
    for (const make of [() => locks.semaphore('no', 2), () => locks.rwLock('no'), () => locks.election('no')])
      expect(make).toThrow(UnsupportedError);
  }
});

test.each(['plain', 'hash'] as const)('%s: the rights that the documentation asks for are enough', async (strategy) => {
  const guide = await readFile(new URL('../../../docs/engines/redis.md', import.meta.url), 'utf8');
  const [, rights] = /For `plain` and `hash` it is\n\n```text\n(.*?)\n```/s.exec(guide) ?? [];
  await redisSays('ACL', 'SETUSER', strategy, 'reset', 'on', '>secret', ...rights!.split(/\s+/));
  const url = `redis://${strategy}:secret@${LOOPBACK}:${server.port}?strategy=${strategy}`;
  await using holder = new Holdfast(url, { ttl: '4s' });
  await using waiter = new Holdfast(url, { ttl: '4s' });
  const lease = await holder.mutex(`rights-${strategy}`).acquire();
  const waiting = waiter.mutex(`rights-${strategy}`).acquire();
  await renewed(lease);
  expect(await lease.release()).toBe(true);
  const next = await waiting;
  await holder.register(next.name).set('x', next);
  expect((await holder.once(`nightly-${strategy}`, { atLeast: '1m' }, () => {})).ran).toBe(true);
  expect(await next.release()).toBe(true);
  const log = await redisSays('ACL', 'LOG');
  expect(log, 'what was refused').toEqual([]);
});

describe.concurrent.each(['redlock', 'redis-semaphore'] as const)('%s', (name) => {
  test('is excluded by us, and we by it', async () => {
    await using peer = PEERS[name](server.port, 20_000);
    await using locks = open({ key: peer.keyOf });
    const lock = locks.mutex(`peer:${name}`);
    const lease = await lock.acquire();
    expect(await peer.tryLock(lock.name)).toBeUndefined();
    expect(await lease.release()).toBe(true);
    const unlock = await peer.tryLock(lock.name);
    expect(unlock).toBeDefined();
    expect(await lock.tryAcquire()).toBeUndefined();
    await unlock?.();
    expect(await (await lock.acquire()).release()).toBe(true);
  });

  test('who waits is served by the other’s release', async () => {
    await using peer = PEERS[name](server.port, 20_000);
    await using locks = open({ key: peer.keyOf, ttl: '60s' });
    const lock = locks.mutex(`waits:${name}`);
    const lease = await lock.acquire();
    const theirs = peer.lock(lock.name);
    await lease.release();
    const unlock = await theirs;
    const ours = lock.acquire();
    await unlock();
    expect(await (await ours).release()).toBe(true);
  });
});

test('processes of three libraries count in one file, and none of them is overtaken', async () => {
  const kinds = ['plain', 'redlock', 'redis-semaphore', 'plain', 'redlock', 'redis-semaphore'] as const;
  const work = { port: server.port, ttlMs: 20_000, key: 'mutex:counted', times: 20 };
  // redis-semaphore puts a word of its own before the name.
  const count = await countTogether(kinds, work, (kind) => (kind === 'redis-semaphore' ? 'counted' : work.key));
  expect(count).toBe(kinds.length * work.times);
});

describe.concurrent('tokens grow', () => {
  test('from grant to grant: after a release, an expiry, and without their memory', async () => {
    await using locks = open();
    const lock = locks.mutex('grows');
    const tokens: bigint[] = [];
    for (const end of ['release', 'expiry', 'forgotten', 'release']) {
      const lease = await lock.acquire();
      tokens.push(lease.token);
      if (end === 'expiry') await redisSays('PEXPIRE', 'grows', 0);
      if (end === 'forgotten') await redisSays('DEL', tokenKey('grows')!);
      expect(await lease.release()).toBe(end !== 'expiry');
    }
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
  });

  test('when the clock of the server is set back', async ({ skip }) => {
    using clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using own = await startRedis({ env: clock.env });
    for (const strategy of ['plain', 'hash'] as const) {
      await using locks = slotLocks(own.port, { strategy });
      const before = await locks.mutex(strategy).run((lease) => lease.token);
      clock.jumpWall(-60_000);
      expect(await locks.mutex(strategy).run((lease) => lease.token)).toBeGreaterThan(before);
    }
  });
});

describe.concurrent('a reply that got lost', () => {
  test('of a take costs nothing: acquire gives the lease, and its release frees the key', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = await through(proxy);
    const lost = proxy.loseReplyOf((request) => request.includes(plain.take.sha1));
    const lease = await locks.mutex('take-lost').acquire();
    await lost;
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
    expect(await exists(server.port, 'take-lost')).toBe(false);
  });

  test('of a take is no refusal: tryAcquire says that it could not ask, and frees what it may have taken', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = await through(proxy);
    const lost = proxy.loseReplyOf((request) => request.includes(plain.take.sha1));
    expect(await failureOf(locks.mutex('try-lost').tryAcquire())).toBeInstanceOf(EngineError);
    await lost;
    await until('the key is gone', async () => !(await exists(server.port, 'try-lost')));
  });

  test('of a renewal is no loss: the next one renews', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = await through(proxy);
    const lease = await locks.mutex('keep-lost').acquire();
    await proxy.loseReplyOf((request) => request.includes(plain.keep.sha1));
    await renewed(lease);
    expect(lease.signal.aborted).toBe(false);
    expect(await lease.release()).toBe(true);
  });

  test('of a drop is a release', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = await through(proxy);
    const lease = await locks.mutex('drop-lost').acquire();
    const lost = proxy.loseReplyOf((request) => request.includes(plain.drop.sha1));
    expect(await lease.release()).toBe(true);
    await lost;
    expect(await exists(server.port, 'drop-lost')).toBe(false);
    await locks.mutex('drop-lost').run((again) => again.assertHeld());
  });

  test('a drop that never got there is sent again, long before the key expires', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = await through(proxy, '60s');
    const lease = await locks.mutex('orphan').acquire();
    proxy.set({ mode: 'reset' });
    await lease.release();
    expect(await exists(server.port, 'orphan')).toBe(true);
    proxy.set({ mode: 'pass' });
    await until('the key is gone', async () => !(await exists(server.port, 'orphan')));
  });

  test('a drop that nobody can send again leaves a key that expires', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = await through(proxy, '2s');
    const lease = await locks.mutex('expires').acquire();
    proxy.set({ mode: 'reset' });
    await lease.release();
    expect(await exists(server.port, 'expires')).toBe(true);
    await until('the key is gone', async () => !(await exists(server.port, 'expires')));
    proxy.set({ mode: 'pass' });
  });
});

describe.concurrent('a lock that is gone', () => {
  test('with the memory of a server that was restarted: its holder is told', async () => {
    await using own = await startRedis();
    await using locks = slotLocks(own.port, { strategy: 'plain', ttl: '3s' });
    const lease = await locks.mutex('job').acquire();
    await own.restart();
    expect(await lossOf(lease)).toBeInstanceOf(LeaseLostError);
    expect(await lease.release()).toBe(false);
    await locks.mutex('job').run((again) => again.assertHeld());
  });

  test('by FLUSHALL: its holder is told by the next beat, and a release before that says so, too', async () => {
    await using own = await startRedis();
    await using locks = slotLocks(own.port, { strategy: 'plain', ttl: '3s' });
    const [told, released] = await Promise.all(['told', 'released'].map((name) => locks.mutex(name).acquire()));
    await command(own.port, 'FLUSHALL');
    expect(await released!.release()).toBe(false);
    expect(await lossOf(told!)).toBeInstanceOf(LeaseLostError);
  });

  test('because its process was killed is free after a ttl', async () => {
    const ttlMs = 3_000;
    const worker = startWorker({ library: 'plain', port: server.port, ttlMs, name: 'killed', key: 'killed' });
    expect((await once(worker, 'message'))[0]).toBe('holds');
    await using locks = open();
    expect(await locks.mutex('killed').tryAcquire()).toBeUndefined();
    worker.kill('SIGKILL');
    await (await locks.mutex('killed').acquire({ timeout: 10 * ttlMs })).release();
  });
});

describe('what it costs', () => {
  test('a thousand held locks are ten calls with every beat', async () => {
    await using own = await startRedis();
    await using locks = slotLocks(own.port, { strategy: 'plain', ttl: '6s' });
    const names = Array.from({ length: 1_000 }, (_, at) => `lock:${at}`);
    const leases = await Promise.all(names.map((name) => locks.mutex(name).acquire()));
    let beats = 0;
    const count = (): void => void (beats += 1);
    subscribe('tracing:holdfast:beat:start', count);
    try {
      await command(own.port, 'CONFIG', 'RESETSTAT');
      beats = 0;
      await until('four beats', () => beats >= 4);
      // One may have been sent and not counted yet.
      expect(await scriptCalls(own.port)).toBeLessThanOrEqual(10 * (beats + 1));
      expect(await scriptCalls(own.port)).toBeGreaterThanOrEqual(10);
    } finally {
      unsubscribe('tracing:holdfast:beat:start', count);
    }
    expect(leases.filter(({ held }) => !held)).toEqual([]);
  });

  test.each([
    { strategy: 'plain', warmUp: 12, calls: 20 },
    { strategy: 'hash', warmUp: 14, calls: 3 },
  ] as const)('$strategy: who waits for long asks no faster than it should', async ({ strategy, warmUp, calls }) => {
    await using own = await startRedis();
    // So long that no beat is counted among the calls.
    const ttl = '600s';
    await using holder = slotLocks(own.port, { strategy, ttl });
    await using waiter = slotLocks(own.port, { strategy, ttl });
    await using lease = await holder.mutex('job').acquire();
    const waiting = waiter.mutex('job').acquire();
    await until('the pauses have grown', async () => (await scriptCalls(own.port)) > warmUp);
    const start = performance.now();
    await command(own.port, 'CONFIG', 'RESETSTAT');
    await until('it has asked', async () => (await scriptCalls(own.port)) >= calls);
    const leastPauseMs = strategy === 'plain' ? 50 : 500;
    expect(performance.now() - start).toBeGreaterThan((calls - 1) * leastPauseMs * 0.9);
    await lease.release();
    await (await waiting).release();
  });

  test('who waits for one of us is woken by a message', async () => {
    using client = connect(server.port);
    await using holder = open({ ttl: '60s' });
    await using waiter = locksWithoutPolling(client, plain);
    const lease = await holder.mutex('messaged').acquire();
    const waiting = waiter.mutex('messaged').acquire();
    const channel = freedChannel('messaged')!;
    await until('it listens', async () => (await listenersOf(server.port, channel)) === 1);
    await lease.release();
    await (await waiting).release();
  });
});

test('a client of the user’s own does it as well as a URL', async () => {
  using client = connect(server.port);
  await using locks = new Holdfast(redis(client, { strategy: 'plain' }), { namespace: 'own' });
  await using _lease = await locks.mutex('job').acquire();
  expect(await exists(server.port, 'own:job')).toBe(true);
});

async function through(proxy: FaultProxy, ttl: Duration = '3s'): Promise<Holdfast> {
  const locks = slotLocks(proxy.port, { strategy: 'plain', ttl });
  // To a server that does not know a script by its hash it is sent twice.
  await locks.mutex('before').run(() => {});
  return locks;
}
