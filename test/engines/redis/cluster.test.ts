/** What happens to locks when a cluster changes under them: failovers, and slots that move. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { clusterRealm, shardPrefix } from '../../../src/engines/redis/queue/keys.js';
import { Holdfast, type HoldfastOptions } from '../../../src/index.js';
import { type RedisCluster, slotOf, startCluster } from '../../servers/redis-cluster.js';
import { command, info, type Reply } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Referee } from './clients-referee.js';
import { Workers } from './clients-workers.js';

/** A failover takes five seconds on a quiet machine: validity outlives it on any. */
const SURVIVING_TTL = '60s';

let cluster: RedisCluster;

beforeAll(async () => {
  // By default nodes refuse everything while one slot has no primary, and locks of other shards would wait for it.
  cluster = await startCluster({ args: ['--cluster-require-full-coverage', 'no'] });
});

afterAll(() => cluster[Symbol.asyncDispose]());

test('who waits is told over a sharded channel on the lock’s own node, and at once', async () => {
  const options: Options = { ttl: '60s', namespace: 'push', epochGuard: false };
  await using holder = instance(options);
  await using waiter = instance(options);
  const lease = await holder.mutex('job').acquire();
  const next = waiter.mutex('job').acquire();
  await somebodyWaits(holder, 'job');
  await bothListen('push');
  for (const { port } of cluster.nodes) expect(await command(port, 'PUBSUB', 'CHANNELS', 'push:*')).toEqual([]);
  await handsOver(() => lease.release(), next);
});

test('a slot that moves under load: who beats keeps its lock, everybody is served, and nobody sees an error', async () => {
  const slot = slotOfName('job');
  // It beats several times meanwhile. A busy machine takes a while to move the keys, and no script runs on them until it has.
  await using keeper = instance({ ttl: '15s' });
  await using one = instance();
  await using other = instance();
  await using third = instance();
  using referee = new Referee();
  const [kept, ...busy] = namesNear('job', 3);
  const lease = await keeper.mutex(kept!).acquire();
  const workers = new Workers([one, other, third], busy, referee);
  await workers.servedAgain();
  const before = await refusals();
  await cluster.migrateSlot(slot, {
    // Some of the shard's keys are here and some are there, so no script can run.
    during: () =>
      eventually('a client was told to try again', async () => expect(await refusals()).toBeGreaterThan(before)),
  });
  await workers.servedAgain();
  await workers.stop();
  referee.judge();
  expect(workers.mostInside).toBe(1);
  expect(lease.held).toBe(true);
  expect(await lease.release()).toBe(true);
});

test('after a slot has moved, who waits is told at once again', async () => {
  const options: Options = { ttl: '60s', namespace: 'moved', epochGuard: false };
  await using holder = instance(options);
  await using waiter = instance(options);
  await Promise.all([holder, waiter].map((locks) => locks.mutex('job').run(() => {})));
  await cluster.migrateSlot(slotOfName('job'));
  await bothListen('moved');
  const lease = await holder.mutex('job').acquire();
  const next = waiter.mutex('job').acquire();
  await somebodyWaits(holder, 'job');
  await handsOver(() => lease.release(), next);
});

test('a primary that crashes: its locks are kept or granted anew, never twice, and others are not disturbed', async () => {
  const slot = slotOfName('job');
  const primary = await cluster.primaryOf(slot);
  await using keeper = instance({ ttl: SURVIVING_TTL, namespace: 'keeper', epochGuard: false });
  await using one = instance();
  await using other = instance();
  await using third = instance();
  using referee = new Referee();
  const kept = await keeper.mutex('job').acquire();
  const elsewhere = await one.mutex(await nameElsewhere(primary)).acquire();
  const workers = new Workers([one, other, third], ['job'], referee);
  await workers.servedAgain();
  let disturbed = 0;
  const watch = setInterval(() => (disturbed += elsewhere.held ? 0 : 1), 2);

  await cluster.failover(slot, 'kill');
  await workers.servedAgain();
  await workers.stop();
  clearInterval(watch);
  referee.judge();
  expect(workers.mostInside).toBe(1);
  expect(disturbed).toBe(0);
  expect([kept.held, elsewhere.held]).toEqual([true, true]);
  expect(await Promise.all([kept.release(), elsewhere.release()])).toEqual([true, true]);
});

test('a primary that hangs is left: locks are granted elsewhere, and those who wait listen there', async () => {
  const options: Options = { namespace: 'hung', epochGuard: false };
  await using holder = instance(options);
  await using waiter = instance(options);
  const name = 'job-of-another';
  const slot = slotOfName(name);
  const primary = await cluster.primaryOf(slot);
  await Promise.all([holder, waiter].map((locks) => locks.mutex(name).run(() => {})));
  await primary.pause();
  await cluster.settled();
  const lease = await holder.mutex(name).acquire({ timeout: '30s' });
  const next = waiter.mutex(name).acquire({ timeout: '30s' });
  await somebodyWaits(holder, name);
  await bothListen('hung', name);
  expect(await lease.release()).toBe(true);
  expect(await (await next).release()).toBe(true);
  primary.resume();
});

type Options = HoldfastOptions & { readonly epochGuard?: boolean };

function instance(options: Options = {}): Holdfast {
  const { epochGuard = true, ...rest } = options;
  const hosts = cluster.hosts.map(({ host, port }) => `${host}:${port}`).join();
  return new Holdfast(`redis+cluster://${hosts}?epochGuard=${epochGuard}`, { ttl: '6s', ...rest });
}

/** Whatever the namespace is: the shard decides. */
function slotOfName(name: string): number {
  return slotOf(shardPrefix('', clusterRealm(name)));
}

/** Names of the same shard. */
function namesNear(name: string, count: number): string[] {
  const numbered = Array.from({ length: 1_000 }, (_, number) => `${name}-${number}`);
  return numbered.filter((near) => clusterRealm(near) === clusterRealm(name)).slice(0, count);
}

/** A name of a shard that another primary has. */
async function nameElsewhere(primary: Server): Promise<string> {
  for (let number = 0; ; number += 1) {
    const name = `elsewhere-${number}`;
    if ((await cluster.primaryOf(slotOfName(name))) !== primary) return name;
  }
}

/** How often any node said that it can't run a script because its keys are on two nodes. */
async function refusals(): Promise<number> {
  const awake = cluster.nodes.filter(({ running }) => running);
  const stats = await Promise.all(awake.map(({ port }) => info(port, 'INFO', 'errorstats')));
  const counts = stats.map((lines) => Number(/count=(\d+)/.exec(lines.get('errorstat_TRYAGAIN') ?? '')?.[1] ?? 0));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Two instances, on the node that has the lock now. Channels of sessions that were given up may stand beside theirs. */
async function bothListen(namespace: string, name = 'job'): Promise<void> {
  await eventually('both listen on the lock’s node', async () => {
    const primary = await cluster.primaryOf(slotOfName(name));
    const inboxes = await command(primary.port, 'PUBSUB', 'SHARDCHANNELS', `${namespace}:*`);
    expect((await subscribers(primary, inboxes)).length).toBeGreaterThanOrEqual(2);
  });
}

async function subscribers({ port }: Server, channels: Reply): Promise<number[]> {
  const names = Array.isArray(channels) ? channels.map(String) : [];
  const counts = names.map(async (name) => {
    const answer = await command(port, 'PUBSUB', 'SHARDNUMSUB', name);
    return Array.isArray(answer) ? Number(answer[1]) : 0;
  });
  return Promise.all(counts);
}

async function somebodyWaits(locks: Holdfast, name: string): Promise<void> {
  await eventually('somebody waits', async () => {
    const { claims } = await locks.mutex(name).inspect();
    expect(claims.map(({ state }) => state)).toContain('waiting');
  });
}

/** By a message: with a ttl of a minute the next beat would bring it after 16 seconds at the earliest. */
async function handsOver(release: () => Promise<unknown>, next: Promise<AsyncDisposable>): Promise<void> {
  const start = performance.now();
  await release();
  await using _lease = await next;
  expect(performance.now() - start).toBeLessThan(8_000);
}
