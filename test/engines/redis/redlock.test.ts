/**
 * Redlock on five real servers, on its bad days. Where other libraries have been seen to fail on just this, they do it
 * again beside us: a test that nobody can fail proves nothing.
 */
import { EventEmitter, once } from 'node:events';
import type { Redis } from 'ioredis';
import { RedlockMutex } from 'redis-semaphore';
import Redlock from 'redlock';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim, Engine } from '../../../src/core/engine.js';
import { FREE, VOTE } from '../../../src/engines/redis/redlock/protocol.js';
import { redlock, type RedlockOptions } from '../../../src/engines/redis/index.js';
import {
  AcquireTimeoutError,
  ConfigError,
  EngineError,
  Holdfast,
  type HoldfastOptions,
  type Lease,
  UnsupportedError,
} from '../../../src/index.js';
import { Actor } from '../../../src/conformance/protocol.js';
import { CLOCK_SHIM_NEEDS } from '../../servers/clock-shim.js';
import { command } from '../../servers/resp.js';
import { failureOf, until } from './faults-kit.js';
import { RedlockNodes } from './redlock-nodes.js';

const TTL_MS = 10_000;

let five: RedlockNodes;
let names = 0;

beforeAll(async () => {
  five = await RedlockNodes.start(5);
});

afterAll(() => five[Symbol.asyncDispose]());

/** A user with connections of its own. */
function user(options: HoldfastOptions & RedlockOptions = {}, nodes: readonly object[] = five.clients()): Holdfast {
  const { epochGuard = false, ...rest } = options;
  return new Holdfast(redlock(nodes, { epochGuard }), { ttl: TTL_MS, ...rest });
}

function newName(): string {
  names += 1;
  return `lock-${names}`;
}

const holdersOn = (ports: readonly number[], name: string): Promise<unknown[]> =>
  Promise.all(ports.map((port) => command(port, 'GET', `holdfast:${name}`)));

async function isOn(name: string, count: number): Promise<void> {
  await until(`${name} is on ${count} nodes`, async () => {
    const values = await holdersOn(five.ports, name);
    return values.filter((value) => value !== null).length === count;
  });
}

describe('on five nodes', () => {
  test('a lock is on all of them, and is gone from all of them when it is released', async () => {
    await using locks = user();
    const name = newName();
    const lease = await locks.mutex(name).acquire();
    await isOn(name, 5);
    expect(await lease.release()).toBe(true);
    await isOn(name, 0);
  });

  test('strangers exclude each other and are woken by a release; tokens grow', async () => {
    await using one = user();
    await using other = user();
    const name = newName();
    const first = await one.mutex(name).acquire();
    expect(await other.mutex(name).tryAcquire()).toBeUndefined();
    const second = other.mutex(name).acquire();
    await first.release();
    expect((await second).token).toBeGreaterThan(first.token);
  });

  test('what a try gives back late takes nothing from the next try, which was granted meanwhile', async () => {
    const name = newName();
    const clients = five.clients();
    // As on a node that does not know the script yet, and is told it only after the next try.
    const late: (() => void)[] = [];
    let heard = false;
    for (const client of clients) {
      const evalsha = client.evalsha.bind(client) as (...words: unknown[]) => Promise<unknown>;
      client.evalsha = async (...words: unknown[]) => {
        if (words[0] === FREE.sha1 && !heard) await new Promise<void>((resolve) => late.push(resolve));
        return evalsha(...words);
      };
    }
    await using locks = user({}, clients);
    // The first try comes while somebody has it.
    await locks.ready();
    const others = five.ports.slice(0, 3);
    await Promise.all(others.map((port) => command(port, 'SET', `holdfast:${name}`, 'somebody', 'PX', '2000')));
    await locks.mutex(name).acquire();
    expect(late.length).toBeGreaterThanOrEqual(5);
    // It is granted by three of them; the others hear of it a moment later, or with the next beat. Until then one may have
    // what an earlier try has not given back yet.
    let first = await holdersOn(five.ports, name);
    await until('all five have the same', async () => {
      first = await holdersOn(five.ports, name);
      return first[0] !== null && new Set(first).size === 1;
    });
    heard = true;
    for (const come of late) come();
    // On each node these come after what came late.
    await Promise.all(clients.map((client) => client.ping()));
    expect(await holdersOn(five.ports, name)).toEqual(first);
  });

  test('a URL names them all', async () => {
    const hosts = five.ports.map((port) => `127.0.0.1:${port}`).join(',');
    await using locks = new Holdfast(`redlock://${hosts}?epochGuard=false`);
    await using lease = await locks.mutex(newName()).acquire();
    expect(lease.held).toBe(true);
    expect(() => locks.rwLock('books')).toThrow(UnsupportedError);
    expect(() => new Holdfast('redlock://one,one')).toThrow(ConfigError);
  });

  test('the same server twice, a cluster or nothing at all is a ConfigError', () => {
    const [client] = five.clients();
    expect(() => redlock([])).toThrow(ConfigError);
    expect(() => redlock([client!, client!])).toThrow(ConfigError);
    expect(() => redlock(['redis+cluster://one:1'])).toThrow(ConfigError);
  });

  test('a lock of another library on the same key excludes us, and ours excludes it', async () => {
    const key = newName();
    const source = redlock(five.clients(), { epochGuard: false, key: (name) => name });
    await using locks = new Holdfast(source, { ttl: TTL_MS });
    const theirs = new Redlock(five.clients(), { retryCount: 0 });
    const lease = await locks.mutex(key).acquire();
    await expect(theirs.acquire([key], TTL_MS)).rejects.toThrow();
    await lease.release();
    const lock = await theirs.acquire([key], TTL_MS);
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined();
    await lock.release();
    await using next = await locks.mutex(key).acquire();
    expect(next.held).toBe(true);
  });
});

describe('one claim, asked for twice at once', () => {
  test('a try that fails frees nothing of the one that succeeds', async () => {
    const nodes = five.clients();
    const engine = await redlock(nodes, { epochGuard: false }).connect({ namespace: 'twice', clock: systemClock });
    await using _ = engine;
    const actor = await Actor.open(engine, { id: 'secret', realm: '', ttlMs: TTL_MS, label: 'twice' }, 'actor');
    // The nodes know the scripts by now: one that they had to be told could overtake another.
    const { claim: other } = await actor.hold({ name: newName() });
    await actor.session.leave(other);
    await Promise.all(nodes.map((node) => node.ping()));
    const name = newName();
    const key = `twice:${name}`;
    // The first try finds three nodes busy; they are free when the second comes.
    for (const node of nodes.slice(0, 3)) await node.set(key, 'another', 'PX', 60_000);
    const claim = actor.claim({ name });
    const first = actor.session.enter(claim);
    for (const node of nodes)
      void node.eval("if redis.call('GET', KEYS[1]) == 'another' then redis.call('DEL', KEYS[1]) end", 1, key);
    const second = actor.session.enter(claim);
    await Promise.all([first, second]);
    await until('it is granted', async () => (await actor.session.enter(claim)).state === 'held');
    // Whatever was sent before has been carried out by now.
    await Promise.all(nodes.map((node) => node.ping()));
    const values = await Promise.all(nodes.map((node) => node.get(key)));
    expect(values.filter((value) => value?.startsWith(claim.id)).length).toBeGreaterThanOrEqual(3);
  });
});

describe('with nodes that are gone', () => {
  test.each(['dead', 'hung'] as const)('two of five are %s: locks go on, and nobody waits for them', async (how) => {
    const two = five.nodes.slice(0, 2);
    // A node may take a tenth of it, which is six seconds, before it counts as silent.
    const ttl = 6 * TTL_MS;
    await using one = user({ ttl });
    await using other = user({ ttl });
    await Promise.all([one.ready(), other.ready()]);
    for (const { server } of two) await (how === 'dead' ? server.kill() : server.pause());
    try {
      const name = newName();
      const began = performance.now();
      for (let turn = 0; turn < 10; turn += 1) {
        const lease = await (turn % 2 === 0 ? one : other).mutex(name).acquire();
        expect(await lease.release()).toBe(true);
      }
      // Twenty calls that waited for one would take two minutes.
      expect(performance.now() - began).toBeLessThan(60_000);
    } finally {
      for (const { server } of two) await (how === 'dead' ? server.restart() : server.resume());
    }
  });

  test('three of five are dead: an EngineError, because nobody can know whether it is busy', async () => {
    const three = five.nodes.slice(0, 3);
    await using locks = user({ ttl: 3_000 });
    await locks.ready();
    for (const { server } of three) await server.kill();
    try {
      const error = await locks
        .mutex(newName())
        .acquire({ timeout: 4_500 })
        .catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(EngineError);
    } finally {
      for (const { server } of three) await server.restart();
    }
  });

  test('a node that missed a lock gets it with the next beat', async () => {
    await using locks = user({ ttl: 6_000 });
    await locks.ready();
    const [{ server }] = five.nodes as [RedlockNodes['nodes'][0]];
    await server.kill();
    const name = newName();
    const lease = await locks.mutex(name).acquire();
    await server.restart();
    await isOn(name, 5);
    expect(lease.held).toBe(true);
    await lease.release();
  });
});

/** One who holds a lock on all five, and beats when it is told to. */
async function beating(nodes: readonly object[]): Promise<{ actor: Actor; claim: Claim; engine: Engine }> {
  const source = redlock(nodes, { epochGuard: false });
  const engine = await source.connect({ namespace: 'holdfast', clock: systemClock });
  // A node may take a tenth of it before it counts as silent.
  const options = { id: 'secret', realm: '', ttlMs: 6 * TTL_MS, label: 'beats' };
  const actor = await Actor.open(engine, options, newName());
  const { claim } = await actor.hold({ name: newName() });
  await isOn(claim.line.name, 5);
  return { actor, claim, engine };
}

async function forgetOn(ports: readonly number[], { line }: Claim): Promise<void> {
  const key = `holdfast:${line.name}`;
  for (const port of ports) await command(port, 'DEL', key, `holdfast_ballot:${key}`);
}

describe('a beat', () => {
  test('that finds the lock on two of five only tells the loss, and gives back what it has set again', async () => {
    const { actor, claim, engine } = await beating(five.clients());
    await using _ = engine;
    await forgetOn(five.ports.slice(0, 3), claim);
    expect(await actor.beat({ held: [claim] })).toMatchObject({ alive: true });
    expect(actor.lossOf(claim)).toEqual({ reason: 'session' });
    // Long before its ttl is over.
    await isOn(claim.line.name, 0);
  });

  test('that a node has to be told twice, because it does not know the script, brings back nothing that was left meanwhile', async () => {
    const { actor, claim, engine } = await beating(five.clients());
    await using _ = engine;
    for (const port of five.ports) await command(port, 'SCRIPT', 'FLUSH');
    // Of taking and giving back they know again, of beats not.
    await using another = user();
    const other = newName();
    await another.mutex(other).run(() => {});
    await isOn(other, 0);
    const beat = actor.beat({ held: [claim] });
    expect(await actor.session.leave(claim)).toBe(true);
    await beat;
    await isOn(claim.line.name, 0);
  });

  test('that finds it on three of five renews it, and sets it again on the others', async () => {
    const { actor, claim, engine } = await beating(five.clients());
    await using _ = engine;
    await forgetOn(five.ports.slice(0, 2), claim);
    expect(await actor.beat({ held: [claim] })).toEqual({ alive: true });
    await isOn(claim.line.name, 5);
    expect(actor.lossOf(claim)).toBeUndefined();
  });

  test('that most nodes do not answer is neither a renewal nor a loss', async () => {
    const proxies = await five.proxies();
    const { actor, claim, engine } = await beating(five.clients(proxies.map(({ port }) => port)));
    await using _ = engine;
    for (const proxy of proxies.slice(0, 3)) proxy.set({ mode: 'cut' });
    expect(await failureOf(actor.beat({ held: [claim] }))).toBeInstanceOf(EngineError);
    expect(actor.lossOf(claim)).toBeUndefined();
  });
});

/**
 * Each of these users votes on a part of the nodes first, and elsewhere only when all of them were answered there. All of
 * them send from one process in one order, so their votes would hardly ever split by themselves.
 */
function splitVotes(users: readonly (readonly Redis[])[]): Promise<void> {
  let missing = users[0]!.length;
  const split = new EventEmitter();
  const over = once(split, 'over').then(() => {});
  for (const [at, clients] of users.entries())
    for (const [node, client] of clients.entries()) {
      const evalsha = client.evalsha.bind(client) as (...words: unknown[]) => Promise<unknown>;
      let first = node % users.length === at;
      client.evalsha = async (...words: unknown[]) => {
        if (words[0] !== VOTE.sha1) return evalsha(...words);
        if (!first) await over;
        const answer = await evalsha(...words);
        if (first) missing -= 1;
        first = false;
        if (missing === 0) split.emit('over');
        return answer;
      };
    }
  return over;
}

describe('half of the nodes', () => {
  test.each([2, 4])('of %d are no majority: who reaches no more is granted nothing', async (count) => {
    const halves = [await five.proxies(), await five.proxies()].map((proxies) => proxies.slice(0, count));
    await using one = user({}, five.clients(halves[0]!.map(({ port }) => port)));
    await using other = user({}, five.clients(halves[1]!.map(({ port }) => port)));
    await Promise.all([one.ready(), other.ready()]);
    for (const [at, proxies] of halves.entries())
      for (const [node, proxy] of proxies.entries()) if (node % 2 === at) proxy.set({ mode: 'cut' });
    const name = newName();
    for (const locks of [one, other])
      expect(await failureOf(locks.mutex(name).tryAcquire())).toBeInstanceOf(EngineError);
  });

  test.each([2, 4])('of %d for each of two users: neither is granted, and then everybody is served', async (count) => {
    const ports = five.ports.slice(0, count);
    const nodes = [five.clients(ports), five.clients(ports)];
    await using one = user({ cohort: false }, nodes[0]);
    await using other = user({ cohort: false }, nodes[1]);
    // A node that does not know the script would be asked twice.
    const known = nodes.flat().map((node) => node.script('LOAD', VOTE.text));
    await Promise.all([one.ready(), other.ready(), ...known]);
    const split = splitVotes(nodes);
    const name = newName();
    let inside = 0;
    const turn = async (locks: Holdfast): Promise<void> => {
      await using lease = await locks.mutex(name).acquire({ timeout: '60s' });
      inside += 1;
      await split;
      // Whoever was granted by half of the votes is inside by now.
      await holdersOn(ports, name);
      expect([inside, lease.held]).toEqual([1, true]);
      inside -= 1;
    };
    await Promise.all([one, other].flatMap((locks) => Array.from({ length: 8 }, () => turn(locks))));
  });

  test('control: with two nodes whose votes are split, redlock 5 never settles', async () => {
    const ports = five.ports.slice(0, 2);
    const key = newName();
    for (const port of ports.slice(0, 1)) await command(port, 'SET', key, 'another', 'PX', '60000');
    const theirs = new Redlock(five.clients(ports), { retryCount: 0 });
    const settled = theirs.acquire([key], 1_000).then(
      () => 'settled',
      () => 'settled',
    );
    const ours = new Holdfast(redlock(five.clients(ports), { epochGuard: false, key: (name) => name }), {
      ttl: TTL_MS,
    });
    await using locks = ours;
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined();
    // All its votes are cast by now: it has asked before us, on the same servers.
    expect(await Promise.race([settled, Promise.resolve('open')])).toBe('open');
  });
});

/**
 * A holds on three nodes and can't reach two. One of the three loses its memory: now another can have three.
 */
async function scene(
  name: string,
  take: (nodes: readonly object[]) => Promise<void>,
): Promise<RedlockNodes['nodes'][0]> {
  const proxies = await five.proxies();
  for (const proxy of proxies.slice(3)) proxy.set({ mode: 'cut' });
  await take(five.clients(proxies.map(({ port }) => port)));
  const values = await Promise.all(five.ports.map((port) => command(port, 'EXISTS', name)));
  expect(values).toEqual([1, 1, 1, 0, 0]);
  await five.nodes[0]!.restartEmpty();
  return five.nodes[0]!;
}

describe('a node that lost its memory', () => {
  test('it stays out for one ttl, so nobody else gets in while somebody holds', async () => {
    const name = newName();
    let holder: Holdfast | undefined;
    await scene(`holdfast:${name}`, async (nodes) => {
      holder = user({}, nodes);
      await holder.mutex(name).acquire();
    });
    await using locks = holder!;
    await using other = user({ epochGuard: true });
    // Which of the two it is told depends on whose answers come first: that some say busy, or that one has just started.
    const told = await other
      .mutex(name)
      .tryAcquire()
      .catch((error: unknown) => error);
    if (told !== undefined) expect(told).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: true });
    await locks.close();
  });

  test('without the guard there are two holders: it is what keeps them apart', async () => {
    const name = newName();
    let holder: Holdfast | undefined;
    await scene(`holdfast:${name}`, async (nodes) => {
      holder = user({}, nodes);
      await holder.mutex(name).acquire();
    });
    await using _ = holder!;
    await using other = user({ epochGuard: false });
    expect(await other.mutex(name).tryAcquire()).toBeDefined();
  });

  test('control: redlock 5 and redis-semaphore have two holders', async () => {
    const key = newName();
    let held: { expiration: number } | undefined;
    await scene(key, async (nodes) => {
      held = await new Redlock(nodes, { retryCount: 0 }).acquire([key], TTL_MS);
    });
    const second = await new Redlock(five.clients(), { retryCount: 0 }).acquire([key], TTL_MS);
    expect([held!.expiration > Date.now(), second.expiration > Date.now()]).toEqual([true, true]);

    const other = newName();
    const settings = { lockTimeout: TTL_MS, acquireTimeout: 3_000 };
    let mutex: RedlockMutex | undefined;
    await scene(`mutex:${other}`, async (nodes) => {
      mutex = new RedlockMutex(nodes as never, other, settings);
      await mutex.acquire();
    });
    const secondMutex = new RedlockMutex(five.clients(), other, settings);
    await secondMutex.acquire();
    expect([mutex!.isAcquired, secondMutex.isAcquired]).toEqual([true, true]);
    await Promise.allSettled([mutex!.release(), secondMutex.release()]);
  });
});

/** Busy, or that the clocks disagree: it depends on which nodes are heard first. */
async function attempt(locks: Holdfast, name: string): Promise<unknown> {
  return locks
    .mutex(name)
    .tryAcquire()
    .catch((error: unknown) => {
      expect(error).toBeInstanceOf(EngineError);
      return undefined;
    });
}

describe('clocks', () => {
  const JUMP_MS = TTL_MS + 1_000;

  async function jumped(run: () => Promise<void>): Promise<void> {
    for (const { clock } of five.nodes.slice(0, 3)) clock?.jumpWall(JUMP_MS);
    try {
      await run();
    } finally {
      for (const { clock } of five.nodes.slice(0, 3)) clock?.jumpWall(-JUMP_MS);
    }
  }

  test('three of five jump ahead by more than the ttl: nobody else gets in while the holder believes', async ({
    skip,
  }) => {
    if (!five.nodes[0]!.clock) skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using one = user();
    await using other = user();
    await other.ready();
    const name = newName();
    const lease = await one.mutex(name).acquire();
    await isOn(name, 5);
    await jumped(async () => {
      expect(await attempt(other, name)).toBeUndefined();
      expect(lease.held).toBe(true);
      // Who comes now knows the time by its own clock, and does not believe these nodes either.
      await using late = user();
      expect(await attempt(late, name)).toBeUndefined();
    });
  });

  test('control: with redlock 5 there are two holders', async ({ skip }) => {
    if (!five.nodes[0]!.clock) skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    const key = newName();
    const first = await new Redlock(five.clients(), { retryCount: 0 }).acquire([key], TTL_MS);
    await until('it is on all nodes', async () => {
      const there = await Promise.all(five.ports.map((port) => command(port, 'EXISTS', key)));
      return there.every((count) => count === 1);
    });
    await jumped(async () => {
      const second = await new Redlock(five.clients(), { retryCount: 0 }).acquire([key], TTL_MS);
      expect([first.expiration > Date.now(), second.expiration > Date.now()]).toEqual([true, true]);
    });
  });

  test('nodes that stay ahead are believed after one ttl, and tokens go on growing when they come back', async ({
    skip,
  }) => {
    if (!five.nodes[0]!.clock) skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await using locks = user({ ttl: 2_000 });
    const name = newName();
    const before = await locks.mutex(name).acquire();
    await before.release();
    let ahead = 0n;
    for (const { clock } of five.nodes) clock!.jumpWall(5_000);
    try {
      const lease = await locks.mutex(name).acquire({ timeout: '30s' });
      ahead = lease.token;
      await lease.release();
    } finally {
      for (const { clock } of five.nodes) clock!.jumpWall(-5_000);
    }
    expect(ahead - before.token).toBeGreaterThan(4_000_000n);
    const after = await locks.mutex(name).acquire({ timeout: '30s' });
    expect(after.token).toBeGreaterThan(ahead);
    await after.release();
  });

  test('a user whose clock is wrong by a minute is told so, and served after one ttl', async () => {
    const skewed = {
      now: () => performance.now(),
      wall: () => Date.now() + 60_000,
      random: () => Math.random(),
      id: () => `${newName()}-skewed`,
      timer: (ms: number, run: () => void) => setTimeout(run, ms),
    };
    await using locks = user({ ttl: 6_000, clock: skewed });
    await expect(locks.mutex(newName()).acquire({ timeout: 3_000 })).rejects.toThrow('clock');
    await using lease = await locks.mutex(newName()).acquire({ timeout: '30s' });
    expect(lease.held).toBe(true);
  });
});

describe('after a long wait', () => {
  const SHORT_TTL_MS = 2_000;

  /** Somebody else has it on all nodes until whoever asks for it has waited for longer than a ttl. */
  async function afterWaiting<T>(key: string, acquire: () => Promise<T>): Promise<T> {
    for (const port of five.ports) await command(port, 'SET', key, 'another');
    const began = performance.now();
    const acquired = acquire();
    await until('a ttl is over', () => performance.now() - began > SHORT_TTL_MS + 500);
    for (const port of five.ports) await command(port, 'DEL', key);
    return acquired;
  }

  test('a lease counts from the moment in which it was taken', async () => {
    await using locks = user({ ttl: SHORT_TTL_MS });
    const name = newName();
    const acquire = (): Promise<Lease> => locks.mutex(name).acquire({ timeout: '60s' });
    await using lease = await afterWaiting(`holdfast:${name}`, acquire);
    expect([lease.held, lease.remaining > 0]).toEqual([true, true]);
  });

  test('control: the lock that redlock 5 returns has run out by its own account', async () => {
    const key = newName();
    const theirs = new Redlock(five.clients(), { retryCount: 10_000, retryDelay: 20 });
    const acquire = (): Promise<{ expiration: number }> => theirs.acquire([key], SHORT_TTL_MS);
    const lock = await afterWaiting(key, acquire);
    expect(lock.expiration).toBeLessThan(Date.now());
  });

  test('a release of what was lost says so; control: that of redlock 5 tries for seconds, and throws', async () => {
    await using locks = user({ ttl: SHORT_TTL_MS });
    const name = newName();
    const lease = await locks.mutex(name).acquire();
    for (const port of five.ports) await command(port, 'DEL', `holdfast:${name}`);
    expect(await lease.release()).toBe(false);

    const theirs = await new Redlock(five.clients()).acquire([name], SHORT_TTL_MS);
    for (const port of five.ports) await command(port, 'DEL', name);
    await expect(theirs.release()).rejects.toThrow('quorum');
  });
});

describe('slow replies', () => {
  test('no lock is returned that has run out on the way', async () => {
    const proxies = await five.proxies();
    await using locks = user({ ttl: 2_000 }, five.clients(proxies.map(({ port }) => port)));
    await locks.ready();
    for (const proxy of proxies) proxy.set({ mode: 'delay', ms: 3_200 });
    const outcome = await locks
      .mutex(newName())
      .acquire({ timeout: 10_000 })
      .catch((error: unknown) => error);
    expect(outcome instanceof EngineError || outcome instanceof AcquireTimeoutError).toBe(true);
  });

  test('control: redis-semaphore returns one', async () => {
    const proxies = await five.proxies();
    const nodes = five.clients(proxies.map(({ port }) => port));
    await Promise.all(nodes.map((node) => node.ping()));
    for (const proxy of proxies) proxy.set({ mode: 'delay', ms: 800 });
    const name = newName();
    const mutex = new RedlockMutex(nodes, name, { lockTimeout: 500, refreshInterval: 0, acquireTimeout: 10_000 });
    await mutex.acquire();
    expect(mutex.isAcquired).toBe(true);
    const left = await Promise.all(five.ports.map((port) => command(port, 'EXISTS', `mutex:${name}`)));
    expect(left).toEqual([0, 0, 0, 0, 0]);
    mutex.stopRefresh();
  });
});
