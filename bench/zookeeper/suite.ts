/**
 * The ZooKeeper engine against the least that ZooKeeper can do (zookeeper-raw.ts), with the same client and on the same
 * server: one that does not wait for its disk. The peer has no order, no renewal, no wake-ups and no tokens.
 */
import { Holdfast, type Lease } from 'holdfast';
import { zookeeper } from 'holdfast/zookeeper';
import type { Server } from '../../test/servers/server.js';
import { startZooKeeper } from '../../test/servers/zookeeper.js';
import { type Contest, repeat, together } from '../measure.js';
import { useOurs } from '../memory/suite.js';
import { RawLocks } from './raw.js';

/** So many that the warm-up of a contest is one: with ten, both sides are measured while they are compiled. */
const SEQUENCE = 50;
const NAMES = 64;
const LOCAL_WAITERS = 50;
const HELD = 10_000;
const HANDOFFS = 200;
/** The most of "one create and one watch" that a hand-off may take. */
const HANDOFF_GOAL = 2;

export const peer = 'an ephemeral node that is made and deleted; polling every 10 ms';

let started: Promise<Server> | undefined;

function server(): Promise<Server> {
  started ??= startZooKeeper();
  return started;
}

function ours(port: number, namespace = 'bench'): Holdfast {
  return new Holdfast(zookeeper([`127.0.0.1:${port}`]), { namespace });
}

export async function* contests(): AsyncIterable<Contest> {
  const { port } = await server();
  const locks = ours(port);
  const raw = await RawLocks.open(port);
  await useOurs(locks.mutex('first'));
  const mutexes = Array.from({ length: NAMES }, (_, at) => locks.mutex(`name:${at}`));
  const side = (): Promise<void> => repeat(SEQUENCE, () => raw.use('raw'));
  // The peer on both sides: what is not 1.0 here is noise, and every other row has as much of it.
  yield { name: 'self-check: the peer against itself', operations: SEQUENCE, ours: side, peer: side };
  yield {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(mutexes[0]!)),
    peer: side,
    goal: 0.8,
  };
  yield {
    name: `${NAMES} in flight on different names`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => useOurs(mutexes[at]!)),
    peer: () => together(NAMES, (at) => raw.use(`raw:${at}`)),
  };
  yield {
    name: `${LOCAL_WAITERS} waiters on one lock in one process`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => useOurs(mutexes[0]!)),
    peer: () => together(LOCAL_WAITERS, () => raw.use('raw:waiters')),
    goal: 10,
    pairs: 15,
  };
  await locks.close();
  await raw.close();
}

export async function* facts(): AsyncIterable<string> {
  const running = await server();
  yield await handOff(running.port);
  yield await heldLocks(running.port);
  await running.stop();
}

/** From the call of release in one instance to the lease in the other, against one create and one watch of the raw client. */
async function handOff(port: number): Promise<string> {
  const sides = [ours(port), ours(port)];
  const raws = [await RawLocks.open(port), await RawLocks.open(port)] as const;
  const [handOffs, creates, watches]: [number[], number[], number[]] = [[], [], []];
  let lease = await sides[0]!.mutex('hand-off').acquire();
  for (let round = 1; round <= HANDOFFS; round += 1) {
    const lock = sides[round % 2]!.mutex('hand-off');
    const next = lock.acquire();
    while ((await lock.inspect()).claims.length < 2);
    const releasedAt = performance.now();
    void lease.release();
    lease = await next;
    handOffs.push(performance.now() - releasedAt);
    // In turns: both sides have the same noise.
    const createdAt = performance.now();
    await raws[0].take('watched');
    creates.push(performance.now() - createdAt);
    watches.push(await watchDelivery(raws));
  }
  await Promise.all([...sides, ...raws].map((each) => each.close()));
  const [took, create, watch] = [median(handOffs), median(creates), median(watches)];
  const ratio = took / (create + watch);
  return (
    `hand-off between two instances, p50: ${took.toFixed(2)} ms; raw create ${create.toFixed(2)} ms and watch ` +
    `${watch.toFixed(2)} ms: ${ratio.toFixed(2)} × (goal ≤ ${HANDOFF_GOAL}, ${ratio <= HANDOFF_GOAL ? 'met' : 'missed'})`
  );
}

/** From the call of delete in one client to the event in the other. */
async function watchDelivery([owner, watcher]: readonly [RawLocks, RawLocks]): Promise<number> {
  // A watch alone keeps no process alive.
  const alive = setInterval(nothing, 1_000);
  const { promise: heard, resolve } = deferred();
  await watcher.client.getData('/raw/watched', resolve);
  const deletedAt = performance.now();
  const deleted = owner.client.delete('/raw/watched');
  await heard;
  clearInterval(alive);
  const took = performance.now() - deletedAt;
  await deleted;
  return took;
}

/** The paths of what goes with the session are what a beat carries beside a few bytes. */
async function heldLocks(port: number): Promise<string> {
  const locks = ours(port, 'held');
  const leases: Lease[] = [];
  while (leases.length < HELD) {
    const names = Array.from({ length: 500 }, (_, at) => `${leases.length + at}`);
    leases.push(...(await Promise.all(names.map((name) => locks.mutex(name).acquire()))));
  }
  const raw = await RawLocks.open(port);
  for (let at = 0; at < HELD; at += 500)
    await Promise.all(
      Array.from({ length: 500 }, (_, more) =>
        raw.client.create(`/raw/a-name-as-long-as-that-of-a-claim-is-${'x'.repeat(40)}${at + more}`, {
          mode: 'ephemeral',
        }),
      ),
    );
  const times: number[] = [];
  let bytes = 0;
  for (let round = 0; round < 10; round += 1) {
    const startedAt = performance.now();
    const paths = await raw.client.getEphemerals();
    times.push(performance.now() - startedAt);
    bytes = paths.reduce((sum, { length }) => sum + length + 4, 0);
  }
  const kept = leases.filter(({ held }) => held).length;
  await locks.close();
  await raw.close();
  const size = `${(bytes / 1_024 / 1_024).toFixed(1)} MiB in ${median(times).toFixed(0)} ms`;
  return `${HELD.toLocaleString('en')} held locks (${kept.toLocaleString('en')} kept): a beat carries ${size}`;
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = nothing;
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve: () => resolve() };
}

function nothing(): void {}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
