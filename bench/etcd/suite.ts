/**
 * The etcd engine against the least that etcd can do (etcd-raw.ts), with the same client and on the same server: one member
 * that does not wait for its disk. The peer has no order, no renewal, no wake-ups and no tokens. Beside it npm's etcd3
 * (peer.ts).
 */
import { setTimeout } from 'node:timers/promises';
import { Holdfast, type Lease } from 'holdfast';
import { etcd } from 'holdfast/etcd';
import { startEtcd } from '../../test/servers/etcd.js';
import type { Server } from '../../test/servers/server.js';
import { PeerLocks } from './peer.js';
import { RawLocks } from './raw.js';
import { type Contest, repeat, together } from '../measure.js';
import { useOurs } from '../memory/suite.js';

const SEQUENCE = 10;
const NAMES = 64;
const LOCAL_WAITERS = 50;
const HELD = 10_000;
const HANDOFFS = 200;
const CYCLES = 2_000;
/** Times as good as etcd3. */
const PEER_GOAL = 2;

export const peer = 'a transaction that puts a key if there is none, and one that deletes it; polling every 10 ms';

let started: Promise<Server> | undefined;

function server(): Promise<Server> {
  started ??= startEtcd();
  return started;
}

export async function* contests(): AsyncIterable<Contest> {
  const { port } = await server();
  const locks = new Holdfast(etcd([`127.0.0.1:${port}`]));
  const raw = await RawLocks.open(port);
  await useOurs(locks.mutex('first'));
  const ours = Array.from({ length: NAMES }, (_, at) => locks.mutex(`name:${at}`));
  const side = (): Promise<void> => repeat(SEQUENCE, () => raw.use('raw'));
  // The peer on both sides: what is not 1.0 here is noise, and every other row has as much of it.
  yield { name: 'self-check: the peer against itself', operations: SEQUENCE, ours: side, peer: side };
  yield {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(ours[0]!)),
    peer: side,
    goal: 0.8,
  };
  yield {
    name: `${NAMES} in flight on different names`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => useOurs(ours[at]!)),
    peer: () => together(NAMES, (at) => raw.use(`raw:${at}`)),
    goal: 0.8,
  };
  yield {
    name: `${LOCAL_WAITERS} waiters on one lock in one process`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => useOurs(ours[0]!)),
    peer: () => together(LOCAL_WAITERS, () => raw.use('raw:waiters')),
    goal: 10,
    pairs: 15,
  };
  const peers = new PeerLocks(port);
  yield {
    name: 'acquire + release, uncontended, by etcd3',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(ours[0]!)),
    peer: () => repeat(SEQUENCE, () => peers.use('name')),
    goal: PEER_GOAL,
  };
  yield {
    name: `${NAMES} in flight on different names, by etcd3`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => useOurs(ours[at]!)),
    peer: () => together(NAMES, (at) => peers.use(`name:${at}`)),
    goal: PEER_GOAL,
  };
  peers.close();
  await locks.close();
  raw.close();
}

export async function* facts(): AsyncIterable<string> {
  const running = await server();
  yield await cpuPerCycle(running.port);
  yield await handOffs(running.port);
  yield await heldLocks(running.port);
  await running.stop();
}

/** Of this process: what the lock costs who uses it. */
async function cpuPerCycle(port: number): Promise<string> {
  const locks = new Holdfast(etcd([`127.0.0.1:${port}`]));
  const peers = new PeerLocks(port);
  const ours = await cpuOf(() => useOurs(locks.mutex('cpu')));
  const theirs = await cpuOf(() => peers.use('cpu'));
  await locks.close();
  peers.close();
  const figures = `${ours.toFixed(2)} ms, etcd3 ${theirs.toFixed(2)} ms`;
  return `processor time of the client per cycle: ${figures}, ratio ${(theirs / ours).toFixed(1)} (goal ${PEER_GOAL})`;
}

async function cpuOf(cycle: () => Promise<void>): Promise<number> {
  await repeat(CYCLES / 2, cycle);
  const before = process.cpuUsage();
  await repeat(CYCLES, cycle);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000 / CYCLES;
}

/** From the call of release in one instance to the lease in the other. */
async function handOffs(port: number): Promise<string> {
  const sides = [new Holdfast(etcd([`127.0.0.1:${port}`])), new Holdfast(etcd([`127.0.0.1:${port}`]))];
  const ours = await handOff(
    (side) => sides[side]!.mutex('hand-off').acquire(),
    async (side) => {
      while ((await sides[side]!.mutex('hand-off').inspect()).claims.length < 2);
    },
  );
  await Promise.all(sides.map((locks) => locks.close()));
  const peers = [new PeerLocks(port), new PeerLocks(port)];
  // It tells nobody that it waits: after so long it has been refused, and tries again.
  const theirs = await handOff(
    (side) => peers[side]!.acquire('hand-off'),
    () => setTimeout(20 * Math.random()),
  );
  for (const peer of peers) peer.close();
  const figures = `${ours.toFixed(1)} ms, etcd3 tried every 10 ms ${theirs.toFixed(1)} ms`;
  return `hand-off between two instances, p50: ${figures}, ratio ${(theirs / ours).toFixed(1)} (goal ${PEER_GOAL})`;
}

async function handOff(
  acquire: (side: number) => Promise<{ release(): Promise<unknown> }>,
  waits: (side: number) => Promise<unknown>,
): Promise<number> {
  const times: number[] = [];
  let lease = await acquire(0);
  for (let round = 1; round <= HANDOFFS; round += 1) {
    const next = acquire(round % 2);
    await waits(round % 2);
    const releasedAt = performance.now();
    void lease.release();
    lease = await next;
    times.push(performance.now() - releasedAt);
  }
  await lease.release();
  return median(times);
}

/** The keys of the lease are what a beat carries beside a few bytes. */
async function heldLocks(port: number): Promise<string> {
  const locks = new Holdfast(etcd([`127.0.0.1:${port}`]), { namespace: 'held' });
  const raw = await RawLocks.open(port);
  const leases: Lease[] = [];
  while (leases.length < HELD) {
    const names = Array.from({ length: 500 }, (_, at) => `${leases.length + at}`);
    leases.push(...(await Promise.all(names.map((name) => locks.mutex(name).acquire()))));
  }
  const calling = { withinMs: 10_000 };
  const key = { key: Buffer.from('held/lock/0/'), rangeEnd: Buffer.from('held/lock/00') };
  const { kvs } = await raw.client.range(key, calling);
  const times: number[] = [];
  let bytes = 0;
  for (let round = 0; round < 20; round += 1) {
    const startedAt = performance.now();
    const { keys } = await raw.client.leaseKeys(kvs[0]!.lease, calling, leases.length);
    times.push(performance.now() - startedAt);
    bytes = keys.reduce((sum, { length }) => sum + length + 3, 0);
  }
  const kept = leases.filter(({ held }) => held).length;
  await locks.close();
  raw.close();
  const size = `${(bytes / 1_024 / 1_024).toFixed(1)} MiB in ${median(times).toFixed(0)} ms`;
  return `${HELD.toLocaleString('en')} held locks (${kept.toLocaleString('en')} kept): a beat carries ${size}`;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
