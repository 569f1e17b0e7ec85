/** One server of ZooKeeper, and what a network, an operator or a clock does to those who use it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import type { ZooKeeperClient } from '../../../src/engines/zookeeper/client/client.js';
import {
  crowdOfWaiters,
  FEW_WAITERS,
  hungServer,
  leaveWithoutReply,
  placeLostWhileWaiting,
  THOUSAND_WAITERS,
} from '../consensus/faults.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import type { Server } from '../../servers/server.js';
import { figureOf, startZooKeeper } from '../../servers/zookeeper.js';
import { clientOf, engineOf, queued, renewed, standing, until, urlOf } from './kit.js';

let server: Server;

beforeAll(async () => {
  // The servers look for empty containers once a minute; here often, so that lines lose their nodes between their claims.
  server = await startZooKeeper({ properties: { 'znode.container.checkIntervalMs': '300' } });
});

afterAll(() => server.stop());

/** Every request about a lock has its path in it. */
function about(name: string): (request: Buffer) => boolean {
  return (request) => request.includes(`/holdfast/lock/${name}/`);
}

/** How many nodes were made in a line since its own was: also those that a beat has removed as one too many. */
async function everMade(client: ZooKeeperClient, line: string): Promise<number> {
  const { names, stat } = await client.getChildren(line);
  // It counts what comes and what goes.
  return (stat.cversion + names.length) / 2;
}

describe('a reply that got lost', () => {
  test('to the create leaves no orphan and makes no second node: the claim stands once, and is held', async () => {
    await using proxy = await FaultProxy.start(server.port);
    // With a second node it would wait for the first one of its own, until a beat has removed that: beats come soon.
    await using locks = new Holdfast(urlOf(proxy), { ttl: '9s' });
    await using client = await clientOf(server);
    const lock = locks.mutex('lost-enter');
    await locks.ready();
    await client.make('/holdfast/lock/lost-enter', 'container');
    const lost = proxy.loseReplyOf(about('lost-enter'));
    const lease = await lock.acquire();
    await lost;
    expect(await everMade(client, '/holdfast/lock/lost-enter')).toBe(1);
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(await lease.release()).toBe(true);
    expect(await standing(lock)).toEqual({ held: 0, waiting: 0 });
  });

  test('to the create of one who gives up meanwhile leaves no orphan either', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy));
    await using others = new Holdfast(urlOf(server));
    await locks.mutex('given-up').run(() => {});
    await using theirs = await others.mutex('given-up').acquire();
    const giveUp = new AbortController();
    const lost = proxy.loseReplyOf(about('given-up'));
    const waiting = locks.mutex('given-up').acquire({ signal: giveUp.signal });
    await lost;
    giveUp.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await until('only the holder is left', async () => {
      const { held, waiting: others } = await standing(locks.mutex('given-up'));
      return held === 1 && others === 0;
    });
    expect(theirs.held).toBe(true);
  });

  test('to a try costs nothing, and what is refused leaves nothing behind', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy));
    await using others = new Holdfast(urlOf(server));
    const lock = locks.mutex('lost-try');
    await lock.run(() => {});
    const first = proxy.loseReplyOf(about('lost-try'));
    const tried = await lock.tryAcquire().catch((error: unknown) => error);
    await first;
    // Who only tries is told that nobody could be asked; whether its node was made, nobody else has to know.
    expect(tried).toBeInstanceOf(EngineError);
    await until('it left nothing', async () => (await standing(lock)).held === 0);
    await using theirs = await others.mutex('lost-try').acquire();
    expect(await lock.tryAcquire()).toBeUndefined();
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(theirs.held).toBe(true);
  });

  test('to a leave is no loss: release says so, and the next is served', () => leaveWithoutReply(server, urlOf, about));

  test('to a downgrade is carried out once: it reads, and keeps its place', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy));
    await using others = new Holdfast(urlOf(server));
    const lease = await locks.rwLock('lost-downgrade').write.acquire();
    const lost = proxy.loseReplyOf(about('lost-downgrade'));
    const reading = await lease.downgrade();
    await lost;
    await using beside = await others.rwLock('lost-downgrade').read.acquire();
    expect([reading.held, beside.held]).toEqual([true, true]);
    expect(await reading.release()).toBe(true);
  });
});

test('a create that was on its way when we went to another server makes no second node there', async () => {
  await using slow = await FaultProxy.start(server.port);
  await using quick = await FaultProxy.start(server.port);
  // It begins with the first of its servers.
  const clock = { ...systemClock, random: () => 0 };
  await using locks = new Holdfast(urlOf(slow, quick), { ttl: '6s', clock });
  await using client = await clientOf(server);
  await locks.ready();
  await client.make('/holdfast/lock/late-create', 'container');
  slow.set({ mode: 'freeze' });
  const lease = await locks.mutex('late-create').acquire();
  slow.heal();
  await renewed(lease);
  expect(await everMade(client, '/holdfast/lock/late-create')).toBe(1);
  expect(await lease.release()).toBe(true);
  expect(await standing(locks.mutex('late-create'))).toEqual({ held: 0, waiting: 0 });
});

test('a session that expires while its claim waits costs the place in line, and nothing else: the caller waits on', async () => {
  await using proxy = await FaultProxy.start(server.port);
  await using holder = new Holdfast(urlOf(server));
  await using waiter = new Holdfast(urlOf(proxy), { ttl: '4s' });
  const endSession = async (): Promise<void> => {
    proxy.set({ mode: 'reset' });
    await queued(holder.mutex('expired'), 0);
    proxy.heal();
  };
  await placeLostWhileWaiting({ name: 'expired', holder, waiter, endSession });
});

test('a process that is stopped beyond its session: the next is granted, and it knows as soon as it goes on', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-stopped-'));
  const granted = join(folder, 'granted');
  const script = `
    import { existsSync } from 'node:fs';
    import { Holdfast } from 'holdfast';
    const locks = new Holdfast(process.env.LOCKS, { ttl: '2s' });
    const lease = await locks.mutex('stopped').acquire();
    console.log('held');
    const look = () => {
      // Written while we are stopped: this is the first line that runs after it.
      if (existsSync(process.env.GRANTED)) { console.log(String(lease.held)); process.exit(0); }
      setImmediate(look);
    };
    look();`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    cwd: join(import.meta.dirname, '../../..'),
    env: { ...process.env, LOCKS: urlOf(server), GRANTED: granted },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  child.stdout.on('data', (text: Buffer) => (printed += text.toString()));
  await using locks = new Holdfast(urlOf(server));
  await until('it holds', () => printed === 'held\n');
  const waiting = locks.mutex('stopped').acquire();
  await queued(locks.mutex('stopped'), 1);
  child.kill('SIGSTOP');
  await using lease = await waiting;
  await writeFile(granted, '');
  child.kill('SIGCONT');
  // Its streams are at their end too, which 'exit' does not say.
  await once(child, 'close');
  await rm(folder, { recursive: true });
  expect(printed).toBe('held\nfalse\n');
  expect(lease.held).toBe(true);
});

test('a server that hangs is not a lock that is busy', async () => {
  await using own = await startZooKeeper();
  await hungServer(own, urlOf);
});

test('servers that come back with a shorter timeout: whoever counted on the longer one is told before anybody else is granted', async () => {
  const config = { minSessionTimeout: 12_000 };
  await using own = await startZooKeeper({ config });
  await using proxy = await FaultProxy.start(own.port);
  await using holder = new Holdfast(urlOf(proxy), { ttl: '3s' });
  const lease = await holder.mutex('shortened').acquire();
  // It asked for three seconds, and was given twelve.
  expect(lease.remaining).toBeGreaterThan(3_000);
  config.minSessionTimeout = 1_000;
  await own.kill();
  await own.restart();
  let left = lease.remaining;
  const isRenewed = (): boolean => left < (left = lease.remaining);
  await until('it is back at the server', () => !lease.held || isRenewed());
  proxy.set({ mode: 'freeze' });
  await using other = new Holdfast(urlOf(own), { ttl: '3s' });
  const believed = await other.mutex('shortened').run({ timeout: '60s' }, () => lease.held);
  expect(believed).toBe(false);
  expect(lease.signal.reason).toMatchObject({ reason: 'session' });
  proxy.heal();
  // What is agreed on from now on is the short one.
  const next = await holder.mutex('shortened').acquire({ timeout: '60s' });
  expect(next.remaining).toBeLessThanOrEqual(3_000);
});

test('a node that somebody deletes is lost, and its holder told with the next beat', async () => {
  // Long enough that it is a beat that tells, and not the clock.
  await using locks = new Holdfast(urlOf(server), { ttl: '8s' });
  await using client = await clientOf(server);
  const lease = await locks.mutex('deleted').acquire();
  const { names } = await client.getChildren('/holdfast/lock/deleted');
  await client.delete(`/holdfast/lock/deleted/${names[0]}`);
  await until('the holder is told', () => !lease.held);
  expect(lease.signal.reason).toMatchObject({ reason: 'session' });
  await (await locks.mutex('deleted').acquire()).release();
});

test('a node that has our name and is another session’s is not granted', async () => {
  const engine = await engineOf(server, 'owner');
  await using client = await clientOf(server);
  const told: string[] = [];
  const session = await engine.open(
    { id: 'a', realm: '', ttlMs: 60_000, label: 'owner' },
    { granted: () => void told.push('granted'), lost: () => void told.push('lost'), ended: () => {}, hinted: () => {} },
  );
  await client.make('/owner/lock/x', 'container');
  const { path: blocker } = await client.create('/owner/lock/x/_c_other-lock-', { mode: 'ephemeral-sequential' });
  const line = { kind: 'lock', name: 'x' } as const;
  const all = 2 ** 31 - 1;
  const claim = { id: 'ours', line, serial: 1, weight: all, capacity: all, wait: true, note: '{}' };
  expect(await session.enter(claim)).toEqual({ state: 'waiting' });
  const own = '/owner/lock/x/_c_ours-lock-0000000001';
  await client.delete(own);
  await client.create(own, { mode: 'ephemeral' });
  await client.delete(blocker);
  await until('it is told', () => told.length > 0);
  expect(told).toEqual(['lost']);
  await session.close();
  await engine[Symbol.asyncDispose]();
});

test('the node of a line goes when it is empty, comes back when it is needed, and tokens grow on', async () => {
  await using locks = new Holdfast(urlOf(server));
  await using client = await clientOf(server);
  const first = await locks.mutex('container').acquire();
  await first.release();
  await until('the line’s node is gone', async () => (await client.exists('/holdfast/lock/container')) === undefined);
  const second = await locks.mutex('container').acquire();
  const { names } = await client.getChildren('/holdfast/lock/container');
  expect(names[0]).toMatch(/-lock-0000000000$/);
  expect(second.token).toBeGreaterThan(first.token);
  await second.release();
});

function eventsTold(): Promise<number> {
  return figureOf(server.port, 'zk_sum_node_deleted_watch_count');
}

describe('one of those who wait is woken by each release, and no other', () => {
  test('of a few, each with a session of its own', async () => {
    await using engine = await engineOf(server, 'few');
    await crowdOfWaiters(engine, eventsTold, FEW_WAITERS);
  });

  test('of a thousand', async () => {
    await using engine = await engineOf(server, 'crowd');
    await crowdOfWaiters(engine, eventsTold, THOUSAND_WAITERS);
  });
});
