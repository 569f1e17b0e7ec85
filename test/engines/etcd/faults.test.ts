/** One member of etcd, and what a network, an operator or a clock does to those who use it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../../src/index.js';
import { track } from '../../../src/conformance/tracked.js';
import {
  crowdOfWaiters,
  FEW_WAITERS,
  hungServer,
  leaveWithoutReply,
  placeLostWhileWaiting,
  THOUSAND_WAITERS,
} from '../consensus/faults.js';
import { etcdctl, provideEtcdctl, startEtcd } from '../../servers/etcd.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import type { Server } from '../../servers/server.js';
import { clientOf, engineOf, queued, renewed, standing, until, urlOf } from './kit.js';

let server: Server;

/** For a busy machine: how long it takes is nobody's subject here. */
const CALLING = { withinMs: 20_000 };

/** Ten times what it needs to connect again. */
const SOON = { timeout: 15_000 };

beforeAll(async () => {
  server = await startEtcd();
});

afterAll(() => server.stop());

/** Every request about a lock has its key in it. */
function about(name: string): (request: Buffer) => boolean {
  return (request) => request.includes(`holdfast/lock/${name}/`);
}

async function ctl(...words: readonly string[]): Promise<string> {
  return etcdctl(provideEtcdctl(), server, ...words);
}

describe('a reply that got lost', () => {
  test('to an enter costs nothing: the claim stands once, and is held', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy));
    await locks.ready();
    const lost = proxy.loseReplyOf(about('lost-enter'));
    const lock = locks.mutex('lost-enter');
    const lease = await lock.acquire();
    await lost;
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(await lease.release()).toBe(true);
    expect(await standing(lock)).toEqual({ held: 0, waiting: 0 });
  });

  test('to a try costs nothing either, and what is refused leaves nothing behind', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using locks = new Holdfast(urlOf(proxy));
    await using others = new Holdfast(urlOf(server));
    await locks.ready();
    const lock = locks.mutex('lost-try');
    const first = proxy.loseReplyOf(about('lost-try'));
    const lease = await lock.tryAcquire();
    await first;
    expect(lease?.held).toBe(true);
    await lease?.release();
    await using theirs = await others.mutex('lost-try').acquire();
    const second = proxy.loseReplyOf(about('lost-try'));
    expect(await lock.tryAcquire()).toBeUndefined();
    await second;
    expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
    expect(theirs.held).toBe(true);
  });

  test('to a leave is no loss: release says so, and the next is served', () => leaveWithoutReply(server, urlOf, about));
});

test('a lease that is lost while its claim waits costs the place in line, and nothing else: the caller waits on', async () => {
  await using holder = new Holdfast(urlOf(server));
  await using waiter = new Holdfast(urlOf(server));
  using client = clientOf(server);
  const endSession = async (): Promise<void> => {
    const keys = { key: Buffer.from('holdfast/lock/revoked/'), rangeEnd: Buffer.from('holdfast/lock/revoked0') };
    const { kvs } = await client.range(keys, CALLING);
    const [, second] = kvs.toSorted((a, b) => (a.createRevision < b.createRevision ? -1 : 1));
    await client.leaseRevoke(second!.lease, CALLING);
  };
  await placeLostWhileWaiting({ name: 'revoked', holder, waiter, endSession });
});

test('what was compacted while a waiter was cut off does not let it wait for ever', async () => {
  await using proxy = await FaultProxy.start(server.port);
  await using holder = new Holdfast(urlOf(server));
  // No beat comes within this test: each of them would look again without being told.
  await using locks = new Holdfast(urlOf(proxy), { ttl: '10m' });
  const lease = await holder.mutex('compacted').acquire();
  const waiting = track(locks.mutex('compacted').acquire());
  const permit = await holder.semaphore('compacted', 1).acquire();
  const waitingPermit = track(locks.semaphore('compacted', 1).acquire());
  await queued(holder.mutex('compacted'), 1);
  await queued(holder.semaphore('compacted', 1), 1);
  proxy.set({ mode: 'reset' });
  await Promise.all([lease.release(), permit.release()]);
  for (let change = 0; change < 3; change += 1) await ctl('put', 'unrelated', `${change}`);
  const [, revision = ''] = /"revision":(\d+)/.exec(await ctl('endpoint', 'status', '-w', 'json')) ?? [];
  await ctl('compaction', revision);
  proxy.heal();
  await expect.poll(() => [waiting.state, waitingPermit.state], SOON).toEqual(['fulfilled', 'fulfilled']);
});

test('a server that hangs is not a lock that is busy', async () => {
  await using own = await startEtcd();
  await hungServer(own, urlOf);
});

async function eventsTold(): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${server.port}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_events_total (\d+)/m.exec(metrics)?.[1]);
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

describe('users', () => {
  test('a token that expired, or that a restarted server has forgotten, is renewed without a word', async () => {
    await using own = await startEtcd({ args: ['--auth-token-ttl', '1'] });
    await withUsers(own);
    const url = urlOf(own).replace('://', '://locks:secret@');
    await using locks = new Holdfast(url, { ttl: '9s' });
    await using others = new Holdfast(url, { ttl: '9s' });
    // It does not beat in time, so whatever it misses it misses for good.
    await using late = new Holdfast(url, { ttl: '5m' });
    await late.mutex('first').run(() => {});
    const lease = await locks.mutex('users').acquire();
    const waiting = others.mutex('users').acquire();
    await queued(locks.mutex('users'), 1);
    // Beats are three seconds apart, so each finds its token expired.
    await renewed(lease);
    const waitingLate = late.mutex('users').acquire();
    await queued(locks.mutex('users'), 2);
    await lease.release();
    await (await waiting).release();
    const kept = await waitingLate;
    await own.kill();
    await own.restart();
    expect(await kept.release()).toBe(true);
  });

  test('no more rights are needed than the page says, also to inspect, to evict and for registers', async () => {
    await using own = await startEtcd();
    await withUsers(own);
    const url = urlOf(own).replace('://', '://locks:secret@');
    await using locks = new Holdfast(url);
    await using elsewhere = new Holdfast(url, { namespace: 'secrets' });
    const permit = await locks.semaphore('users', 2).acquire({ permits: 2 });
    const lease = await locks.rwLock('users').write.acquire();
    await locks.register('users').set('value', lease);
    expect(await locks.once('nightly', { atLeast: '1m' }, () => 'ran')).toEqual({ ran: true, value: 'ran' });
    await lease.downgrade();
    const [claim] = (await locks.mutex('users').inspect()).claims;
    expect(await locks.evict('users', claim!.id, 'enough')).toBe(true);
    await until('it is evicted', () => !lease.held);
    expect(await permit.release()).toBe(true);
    await expect(elsewhere.mutex('users').acquire()).rejects.toThrow('permission denied');
  });

  test('a wrong password is told at once, and not shown', async () => {
    await using own = await startEtcd();
    await withUsers(own);
    await using locks = new Holdfast(urlOf(own).replace('://', '://locks:hunter2@'));
    const failure = await locks
      .mutex('users')
      .acquire()
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(EngineError);
    expect(failure).toMatchObject({ retryable: false });
    expect(JSON.stringify(failure) + String((failure as Error).stack)).not.toContain('hunter2');
  });
});

test('a lease that is revoked by others is told to its holder at once, not with the next beat', async () => {
  await using locks = new Holdfast(urlOf(server), { ttl: '10m' });
  using client = clientOf(server);
  const lease = await locks.mutex('told').acquire();
  const { kvs } = await client.range(
    { key: Buffer.from('holdfast/lock/told/'), rangeEnd: Buffer.from('holdfast/lock/told0') },
    CALLING,
  );
  await client.leaseRevoke(kvs[0]!.lease, CALLING);
  await until('the holder is told', () => !lease.held);
  expect(lease.signal.reason).toMatchObject({ reason: 'session' });
  await (await locks.mutex('told').acquire()).release();
});

/** The role is the one of docs/engines/etcd.md. */
async function withUsers(own: Server): Promise<void> {
  const commands = [
    'user add root:secret',
    'user grant-role root root',
    'role add locks',
    'role grant-permission locks readwrite holdfast/ --prefix',
    'user add locks:secret',
    'user grant-role locks locks',
    'auth enable',
  ];
  const program = provideEtcdctl();
  for (const words of commands) await etcdctl(program, own, ...words.split(' '));
}
