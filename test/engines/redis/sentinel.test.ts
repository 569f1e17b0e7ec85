/** What a failover behind Sentinel does to locks: nobody is granted what somebody else may still believe to hold. */
import { describe, expect, test } from 'vitest';
import { Holdfast, type HoldfastOptions, type Lease } from '../../../src/index.js';
import { StallableClock } from '../../../src/conformance/stallable-clock.js';
import { type RedisSentinel, startSentinel } from '../../servers/redis-sentinel.js';
import { command, info, RedisConnection, type Reply } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Referee } from './clients-referee.js';
import { Workers } from './clients-workers.js';

/** A failover takes three seconds on a quiet machine, and longer where its election is repeated: validity outlives it. */
const SURVIVING_TTL = '45s';

describe.concurrent('a failover behind Sentinel', () => {
  test('of a primary that crashed: who beats keeps its lock or is told, who waits is served, and never are there two', async () => {
    await using sentinel = await startSentinel();
    await using keeper = instance(sentinel, { ttl: SURVIVING_TTL, namespace: 'keeper' });
    await using one = instance(sentinel);
    await using other = instance(sentinel);
    await using third = instance(sentinel);
    using referee = new Referee();
    const acquired = keeper.mutex('kept').acquire();
    const workers = new Workers([one, other, third], ['job'], referee);
    await workers.servedAgain();
    const kept = await acquired;
    await replicated(sentinel);

    await sentinel.primary.kill();
    await sentinel.settled();
    await workers.servedAgain();
    await workers.stop();
    referee.judge();
    expect(workers.mostInside).toBe(1);
    // An election that has to be repeated takes longer than the ttl; then its holder knows.
    const { held } = kept;
    expect(await kept.release()).toBe(held);
  });

  test('of a primary that hangs is followed, also when it goes on and believes to be one', async () => {
    await using sentinel = await startSentinel();
    await using one = instance(sentinel);
    await using other = instance(sentinel);
    using referee = new Referee();
    const workers = new Workers([one, other], ['job'], referee);
    await workers.servedAgain();

    await sentinel.primary.pause();
    await sentinel.settled();
    await workers.servedAgain();
    sentinel.primary.resume();
    await workers.servedAgain();
    await workers.stop();
    referee.judge();
    expect(workers.mostInside).toBe(1);
  });

  test('that forgot a lock does not grant it again before its holder has stopped to believe in it', async () => {
    await using sentinel = await startSentinel();
    // They reach nobody once they hold: what they believe is all they have.
    const [clock, unguardedClock] = [new StallableClock(), new StallableClock()];
    await using holder = instance(sentinel, { ttl: SURVIVING_TTL, clock });
    await using waiter = instance(sentinel, { ttl: SURVIVING_TTL });
    const throwAway: Options = { ttl: SURVIVING_TTL, namespace: 'unguarded', epochGuard: false };
    await using unguardedHolder = instance(sentinel, { ...throwAway, clock: unguardedClock });
    await using unguardedWaiter = instance(sentinel, throwAway);
    using referee = new Referee();
    const instances = [holder, waiter, unguardedHolder, unguardedWaiter];
    await Promise.all(instances.map((locks) => locks.mutex('before').run(() => {})));
    await replicated(sentinel);

    const lost: Lease[] = [];
    await losing(sentinel, async () => {
      lost.push(await holder.mutex('job').acquire(), await unguardedHolder.mutex('job').acquire());
      expect(await setNx(sentinel.primary, 'job', 'holder')).toBe('OK');
      clock.stall();
      unguardedClock.stall();
    });
    const [lease, unguarded] = lost;
    referee.granted(lease!);

    // What a plain lock does, and what ours would do without the guard: both are granted twice.
    const primary = await sentinel.currentPrimary();
    expect(await setNx(primary, 'job', 'other')).toBe('OK');
    await using twice = await unguardedWaiter.mutex('job').acquire({ timeout: '20s' });
    expect([unguarded!.held, twice.held]).toEqual([true, true]);

    expect(lease!.held).toBe(true);
    const next = await waiter.mutex('job').acquire({ timeout: '60s' });
    referee.granted(next);
    referee.judge();
    expect(lease!.held).toBe(false);
    expect(next.token).toBeGreaterThan(lease!.token);
    expect(await next.release()).toBe(true);
    clock.resume();
    unguardedClock.resume();
  });
});

type Options = HoldfastOptions & { readonly epochGuard?: boolean };

function instance(sentinel: RedisSentinel, options: Options = {}): Holdfast {
  const { epochGuard = true, ...rest } = options;
  const hosts = sentinel.hosts.map(({ host, port }) => `${host}:${port}`).join();
  return new Holdfast(`redis+sentinel://${hosts}/${sentinel.name}?epochGuard=${epochGuard}`, { ttl: '1s', ...rest });
}

function setNx({ port }: Server, key: string, value: string): Promise<Reply> {
  return command(port, 'SET', key, value, 'NX', 'PX', 60_000);
}

/** All that the primary has been told by now. */
async function replicated({ primary, replicas }: RedisSentinel): Promise<void> {
  using connection = await RedisConnection.open(primary.port);
  await connection.send('SET', 'replicated', '1');
  expect(await connection.send('WAIT', replicas.length, 5_000)).toBe(replicas.length);
}

/**
 * Crashes the primary after `grant`, of which no replica hears: they stand still, and the stream to them is so full that
 * what comes now stays in the primary's own memory.
 */
async function losing(sentinel: RedisSentinel, grant: () => Promise<void>): Promise<void> {
  const { primary, replicas } = sentinel;
  await Promise.all(replicas.map((replica) => replica.pause()));
  await eventually('the streams to the replicas are full', async () => {
    await flood(primary);
    const lines = String(await command(primary.port, 'CLIENT', 'LIST', 'TYPE', 'replica'))
      .trim()
      .split('\n');
    expect(lines).toHaveLength(replicas.length);
    for (const line of lines) expect(Number(/ omem=(\d+)/.exec(line)?.[1])).toBeGreaterThan(0);
  });
  await grant();
  await primary.kill();
  for (const replica of replicas) replica.resume();
  await sentinel.settled();
  expect((await info((await sentinel.currentPrimary()).port, 'INFO', 'replication')).get('role')).toBe('master');
}

async function flood({ port }: Server): Promise<void> {
  using connection = await RedisConnection.open(port);
  const value = 'x'.repeat(16_384);
  await Promise.all(Array.from({ length: 500 }, () => connection.send('SET', 'flood', value)));
}
