/**
 * What loses a lock here, and what does not. A memcached forgets when it wants to; what is promised is that the holder is
 * told with its next beat, that it takes nothing from whoever came after it, and that tokens grow.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AcquireTimeoutError, EngineError, type Lease } from '../../../src/index.js';
import { failureOf, lossOf, renewed, until } from '../redis/faults-kit.js';
import { CLOCK_SHIM_NEEDS, clockShim } from '../../servers/clock-shim.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { startMemcached } from '../../servers/memcached.js';
import { ask } from '../../servers/ports.js';
import type { Server } from '../../servers/server.js';
import { stored, TTL_MS, user } from './kit.js';

/** The most that anything here has to wait for: what is lost on the way runs out by itself. */
const PATIENCE = { timeout: '20s' } as const;

async function isLost(lease: Lease): Promise<void> {
  expect(await lossOf(lease)).toMatchObject({ code: 'HOLDFAST_LOST' });
  expect(lease.held).toBe(false);
  expect(await lease.release()).toBe(false);
}

/** Two megabytes, of which even the smallest entry takes eight kilobytes: there is room for 254. The oldest goes first. */
const FEW_ENTRIES = ['-m', '2', '-n', '8192', '-o', 'no_modern'];
const MORE_THAN_FIT = 500;

/** Stores others until the lock is gone: it may be renewed in between, and is the youngest then. */
async function evict(port: number, name: string): Promise<void> {
  const others = Array.from({ length: MORE_THAN_FIT }, (_, at) => `ms other-${at} 1 q\r\nx\r\n`).join('');
  await until('it is evicted', async () => {
    expect(await ask(port, `${others}mn\r\n`)).toBe('MN\r\n');
    // Unlike a get, this does not make it young again.
    return (await ask(port, `me holdfast:${name}\r\n`)) === 'EN\r\n';
  });
}

describe.concurrent('a lock that memcached forgot', () => {
  test('was evicted: its holder is told with the next beat, and the next has a larger token', async () => {
    await using server = await startMemcached({ args: FEW_ENTRIES });
    await using locks = user(server.port);
    const lease = await locks.mutex('evicted').acquire();
    await evict(server.port, 'evicted');
    await isLost(lease);
    await using next = await locks.mutex('evicted').acquire(PATIENCE);
    expect(next.token).toBeGreaterThan(lease.token);
  });

  test('went with a restart: its holder is told, and can’t take the version of one who came after it for its own', async () => {
    await using server = await startMemcached();
    await using proxy = await FaultProxy.start(server.port);
    await using one = user(proxy.port);
    await using other = user(server.port);
    const lease = await one.mutex('restarted').acquire();
    proxy.set({ mode: 'cut' });
    await server.restart();
    const next = await other.mutex('restarted').acquire(PATIENCE);
    proxy.heal();
    expect(next.token).toBeGreaterThan(lease.token);
    await isLost(lease);
    await renewed(next);
    expect(await next.release()).toBe(true);
  });

  test('ran out early because the server’s clock jumped: the same', async ({ skip }) => {
    using clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using server = await startMemcached({ env: clock.env });
    await using one = user(server.port);
    await using other = user(server.port);
    const lease = await one.mutex('early').acquire();
    clock.jumpMonotonic(30_000);
    const next = await other.mutex('early').acquire(PATIENCE);
    expect(next.token).toBeGreaterThan(lease.token);
    await isLost(lease);
    await renewed(next);
    expect(await next.release()).toBe(true);
  });

  test('went with its counter: the next token starts at the clock, which is larger still', async () => {
    await using server = await startMemcached();
    await using locks = user(server.port);
    const lease = await locks.mutex('flushed').acquire();
    for (let turn = 0; turn < 10; turn += 1) await locks.mutex('other').run(() => {});
    await ask(server.port, 'flush_all\r\n');
    await isLost(lease);
    await using next = await locks.mutex('flushed').acquire(PATIENCE);
    expect(next.token).toBeGreaterThan(lease.token + 10n);
  });
});

test('a counter that somebody else has set is refused, and nothing is taken by it; deleted, it goes on above all before', async () => {
  await using server = await startMemcached();
  await using locks = user(server.port);
  const before = await locks.mutex('counted').acquire();
  await before.release();
  // The next number is 0, 1, 2^53, 2^63 and one of 19 digits.
  for (const absurd of [
    '18446744073709551615',
    '0',
    '9007199254740991',
    '9223372036854775807',
    '9999999999999999998',
  ]) {
    await ask(server.port, `ms holdfast:%token ${absurd.length} T0\r\n${absurd}\r\n`);
    const failure = await failureOf(locks.mutex('counted').acquire(PATIENCE));
    expect(failure).toBeInstanceOf(EngineError);
    expect((failure as EngineError).message).toContain('holdfast:%token');
    await until('the lock is given back', async () => (await stored(server.port, 'counted')) === undefined);
  }
  await ask(server.port, 'md holdfast:%token\r\n');
  await using after = await locks.mutex('counted').acquire(PATIENCE);
  expect(after.token).toBeGreaterThan(before.token);
});

describe.concurrent('a reply that is lost', () => {
  let server: Server;

  beforeAll(async () => {
    server = await startMemcached();
  });

  afterAll(() => server.stop());

  test('of a take: it is found, proven and held, and has a token', async () => {
    await using proxy = await FaultProxy.start(server.port);
    // What it took does not run out meanwhile: it has to be found.
    await using one = user(proxy.port, { ttl: '60s' });
    await using other = user(server.port, { ttl: '60s' });
    await one.ready();
    const before = await other.mutex('take').acquire();
    await before.release();
    const lost = proxy.loseReplyOf((request) => request.includes(' ME '));
    const taking = one.mutex('take').acquire(PATIENCE);
    await lost;
    const lease = await taking;
    expect(lease.token).toBeGreaterThan(before.token);
    expect(await other.mutex('take').tryAcquire()).toBeUndefined();
    expect(await lease.release()).toBe(true);
    const next = await other.mutex('take').acquire({ timeout: 0 });
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
  });

  test('of a take that is given up: nobody waits for it longer than a ttl', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using one = user(proxy.port);
    await using other = user(server.port);
    await one.ready();
    proxy.set({ mode: 'freeze' });
    const error = await failureOf(one.mutex('late').acquire({ timeout: 300 }));
    expect(error).toBeInstanceOf(Error);
    // The enter is carried out now, after its leave was due.
    proxy.heal();
    await using lease = await other.mutex('late').acquire({ timeout: 3 * TTL_MS });
    expect(lease.held).toBe(true);
  });

  test('of a renewal: nothing is lost, and the next one renews', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using one = user(proxy.port);
    const lease = await one.mutex('renewal').acquire();
    await proxy.loseReplyOf((request) => / C\d+ T/.test(request.toString()));
    await renewed(lease);
    expect(lease.signal.aborted).toBe(false);
    expect(await lease.release()).toBe(true);
  });

  test('of a release: it is free', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using one = user(proxy.port);
    await using other = user(server.port);
    const lease = await one.mutex('release').acquire();
    const lost = proxy.loseReplyOf((request) => request.includes('md '));
    const released = lease.release();
    await lost;
    await (await other.mutex('release').acquire({ timeout: 0 })).release();
    expect(await released).toBe(true);
    // What is dropped again with the next beat is not another's.
    const next = await other.mutex('release').acquire({ timeout: 0 });
    await one.mutex('else').run(() => {});
    expect(await next.release()).toBe(true);
  });

  test('of a release that never arrived: it is dropped with a beat, long before it runs out', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using one = user(proxy.port, { ttl: '60s' });
    await using other = user(server.port, { ttl: '60s' });
    const lease = await one.mutex('unheard').acquire();
    proxy.set({ mode: 'lose', lose: 'requests' });
    expect(await lease.release()).toBe(true);
    expect(await other.mutex('unheard').tryAcquire()).toBeUndefined();
    proxy.heal();
    await using next = await other.mutex('unheard').acquire({ timeout: '30s' });
    expect(next.held).toBe(true);
  });
});

describe('a server that hangs', () => {
  test('is an EngineError in time; it serves again when it goes on', async () => {
    await using server = await startMemcached();
    await using locks = user(server.port);
    await locks.ready();
    await server.pause();
    const error = await failureOf(locks.mutex('hung').acquire({ timeout: TTL_MS }));
    expect(error).toBeInstanceOf(EngineError);
    expect(error).not.toBeInstanceOf(AcquireTimeoutError);
    server.resume();
    const lease = await locks.mutex('hung').acquire(PATIENCE);
    expect(await lease.release()).toBe(true);
    await until('nothing of ours is left', async () => (await stored(server.port, 'hung')) === undefined);
  });
});
