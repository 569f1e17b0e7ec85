/**
 * The steps of the script one by one, each on a real server whose clock jumps, so that nobody has to wait for a death. The
 * random runs of rule.test.ts come to most of this by luck, on a slow machine after minutes; here it is certain.
 */
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim, Engine } from '../../../src/core/engine.js';
import { redis } from '../../../src/engines/redis/index.js';
import { Actor } from '../../../src/conformance/protocol.js';
import { CLOCK_SHIM_NEEDS, type ClockShim, clockShim } from '../../servers/clock-shim.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { until } from './faults-kit.js';

/** The clock jumps over it; a slow machine does not get there. */
const TTL_MS = 600_000;
const HOUR_MS = 3_600_000;
/** More than one call of the script frees. */
const CROWD = 900;

let clock: ClockShim | undefined;
let server: Server;
let client: Redis;
let engine: Engine;
let namespace = '';
let tests = 0;
let actors = 0;

beforeAll(async () => {
  clock = await clockShim();
  server = await startRedis({ env: clock?.env ?? {} });
  client = new Redis(server.port);
});

beforeEach(async () => {
  tests += 1;
  namespace = `steps-${tests}`;
  engine = await redis(client, { epochGuard: false }).connect({ namespace, clock: systemClock });
});

afterEach(() => engine[Symbol.asyncDispose]());

afterAll(async () => {
  client.disconnect();
  await server.stop();
  clock?.[Symbol.dispose]();
});

function open(ttlMs = TTL_MS): Promise<Actor> {
  actors += 1;
  const alias = `actor${actors}`;
  return Actor.open(engine, { id: `session-of-${alias}`, realm: '', ttlMs, label: alias }, alias);
}

/** Every message that was sent before this has come: another subscription on the same connection was confirmed. */
async function messagesCame(): Promise<void> {
  await open();
}

async function claims(): Promise<string[]> {
  const found: string[] = [];
  for await (const line of engine.inspect!({})) for (const { id, state } of line.claims) found.push(`${id} ${state}`);
  return found.sort();
}

/** So many locks, each of its own name. */
function crowd(actor: Actor, length = CROWD): Promise<Claim[]> {
  return Promise.all(Array.from({ length }, async (_, at) => (await actor.hold({ name: `crowd-${at}` })).claim));
}

describe('a session that is dead, though nobody has buried it', () => {
  beforeEach(({ skip }) => {
    if (!clock) skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
  });

  test('does not get a free lock', async () => {
    const dead = await open();
    clock!.jumpWall(TTL_MS + 1);
    expect(await dead.session.enter(dead.claim({ name: 'free' }))).toEqual({ state: 'gone' });
    expect(await claims()).toEqual([]);
  });

  test('does not get into a line', async () => {
    const [dead, holder] = [await open(), await open(2 * TTL_MS)];
    const { claim } = await holder.hold({ name: 'busy' });
    clock!.jumpWall(TTL_MS + 1);
    expect(await dead.session.enter(dead.claim({ name: 'busy' }))).toEqual({ state: 'gone' });
    expect(await claims()).toEqual([`${claim.id} held`]);
  });

  test('is not revived by its beat', async () => {
    const dead = await open();
    const { claim } = await dead.hold({ name: 'job' });
    clock!.jumpWall(TTL_MS + 1);
    expect(await dead.beat({ held: [claim] })).toEqual({ alive: false });
    expect(await (await open()).couldHold({ name: 'job' })).toBe(true);
  });

  test('keeps nobody out who only tries', async () => {
    const dead = await open();
    const other = await open(2 * TTL_MS);
    await dead.hold({ name: 'job' });
    expect(await other.couldHold({ name: 'job' })).toBe(false);
    clock!.jumpWall(TTL_MS + 1);
    expect(await other.couldHold({ name: 'job' })).toBe(true);
  });

  test('is not served: who waits behind it is', async () => {
    const [holder, next] = [await open(2 * TTL_MS), await open(2 * TTL_MS)];
    const dead = await open();
    const { claim } = await holder.hold({ name: 'job' });
    const missed = await dead.queue({ name: 'job' });
    const waiting = await next.queue({ name: 'job' });
    clock!.jumpWall(TTL_MS + 1);
    expect(await holder.session.leave(claim)).toBe(true);
    await messagesCame();
    expect([dead.grantOf(missed), typeof next.grantOf(waiting)]).toEqual([undefined, 'bigint']);
  });

  test('lives for no longer than its ttl because the clock was set back', async () => {
    const dead = await open();
    await dead.hold({ name: 'job' });
    clock!.jumpWall(-HOUR_MS);
    const passer = await open();
    expect(await passer.beat()).toEqual({ alive: true });
    clock!.jumpWall(TTL_MS + 1);
    const next = await open();
    expect(await next.couldHold({ name: 'job' })).toBe(true);
    clock!.jumpWall(HOUR_MS);
  });

  test('is buried with all that it had, also where that takes several calls', async () => {
    const dead = await open();
    await crowd(dead);
    clock!.jumpWall(TTL_MS + 1);
    const passer = await open();
    expect(await passer.beat()).toEqual({ alive: true });
    await until('it is buried', async () => (await client.zcard(`${namespace}:{0}:sessions`)) === 1);
    expect(await claims()).toEqual([]);
  });
});

describe('tokens grow, though the clock was set back', () => {
  beforeEach(({ skip }) => {
    if (!clock) skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
  });

  test('when a free lock is taken', async () => {
    const actor = await open();
    const first = await actor.hold({ name: 'job' });
    expect(await actor.session.leave(first.claim)).toBe(true);
    clock!.jumpWall(-HOUR_MS);
    const second = await actor.hold({ name: 'job' });
    clock!.jumpWall(HOUR_MS);
    expect(second.token).toBeGreaterThan(first.token);
  });

  test('when a lock is handed over', async () => {
    const [holder, next] = [await open(), await open()];
    const first = await holder.hold({ name: 'job' });
    clock!.jumpWall(-HOUR_MS);
    const waiting = await next.queue({ name: 'job' });
    await holder.session.leave(first.claim);
    await messagesCame();
    clock!.jumpWall(HOUR_MS);
    expect(next.grantOf(waiting)).toBeGreaterThan(first.token);
  });
});

describe('a claim', () => {
  test('of another session is not left, whether somebody waits behind it or not', async () => {
    const [owner, other] = [await open(), await open()];
    const { claim } = await owner.hold({ name: 'job' });
    expect(await other.session.leave(claim)).toBe(false);
    expect(await claims()).toEqual([`${claim.id} held`]);
    const waiting = await other.queue({ name: 'job' });
    expect(await other.session.leave(claim)).toBe(false);
    expect(await claims()).toEqual([`${claim.id} held`, `${waiting.id} waiting`].sort());
  });

  test('of another session is not made lighter', async () => {
    const [owner, other] = [await open(), await open()];
    const { claim } = await owner.hold({ name: 'job' });
    await other.session.reweigh({ ...claim, weight: 1 });
    expect(await other.couldHold({ name: 'job', weight: 1 })).toBe(false);
  });

  test('that only waited takes nothing from what is held when it leaves', async () => {
    const [holder, waiter] = [await open(), await open()];
    await holder.hold({ name: 'gpu', kind: 'semaphore', weight: 3, capacity: 4 });
    const waiting = await waiter.queue({ name: 'gpu', kind: 'semaphore', weight: 2, capacity: 4 });
    expect(await waiter.session.leave(waiting)).toBe(true);
    expect(await waiter.couldHold({ name: 'gpu', kind: 'semaphore', weight: 2, capacity: 4 })).toBe(false);
    expect(await waiter.couldHold({ name: 'gpu', kind: 'semaphore', weight: 1, capacity: 4 })).toBe(true);
  });

  test('that fits does not pass one that waits', async () => {
    const [holder, waiter] = [await open(), await open()];
    await holder.hold({ name: 'gpu', kind: 'semaphore', weight: 3, capacity: 4 });
    await waiter.queue({ name: 'gpu', kind: 'semaphore', weight: 2, capacity: 4 });
    expect(await waiter.couldHold({ name: 'gpu', kind: 'semaphore', weight: 1, capacity: 4 })).toBe(false);
  });

  test('that is granted is told with its token', async () => {
    const [holder, next] = [await open(), await open()];
    const { claim, token } = await holder.hold({ name: 'job' });
    const waiting = await next.queue({ name: 'job' });
    await holder.session.leave(claim);
    await messagesCame();
    const told = next.grantOf(waiting);
    expect(await next.session.enter(waiting)).toEqual({ state: 'held', token: told });
    expect(told).toBeGreaterThan(token);
  });

  test('that has left is no longer to be evicted: nothing is left of the mark', async () => {
    const actor = await open();
    const { claim } = await actor.hold({ name: 'job' });
    expect(await engine.evict!('job', claim.id, 'enough')).toBe(true);
    expect(await actor.session.leave(claim)).toBe(true);
    const fields = await client.hkeys(`${namespace}:{0}:state`);
    expect(fields.filter((field) => field.startsWith('e'))).toEqual([]);
  });
});

test('a session that closes leaves nothing, also where it has more than one call can take', async () => {
  const actor = await open();
  // So much that whoever looks after the dead meanwhile is not done with it when close() is.
  await crowd(actor, 10 * CROWD);
  await actor.session.close();
  expect(await client.keys(`${namespace}:*`)).toEqual([`${namespace}:{0}:state`]);
  expect(await client.hkeys(`${namespace}:{0}:state`)).toEqual(['shard']);
});

test.each(['sessions', 'state', 'order'])('whoever beats hears that all is lost after DEL %s', async (key) => {
  const actor = await open();
  const { claim } = await actor.hold({ name: 'job' });
  await client.del(`${namespace}:{0}:${key}`);
  expect(await actor.beat({ held: [claim] })).toEqual({ alive: false });
});
