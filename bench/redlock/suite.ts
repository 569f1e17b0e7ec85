/** Redlock on five servers, against the two libraries that have it, on the same servers with clients of the same kind. */
import { setTimeout } from 'node:timers/promises';
import { startRedis } from '../../test/servers/redis.js';
import type { Server } from '../../test/servers/server.js';
import { type Contest, repeat, together } from '../measure.js';
import { Child } from '../child.js';
import { type Side, type Use, userOf } from './peers.js';

const NODES = 5;
const SEQUENCE = 30;
const NAMES = 16;
const LOCAL_WAITERS = 50;
const PROCESSES = 4;
const WAITERS_EACH = 2;
/** Where a round of the others may take seconds. */
const SLOW_PAIRS = 3;
const PAIRS = 21;
const LIMIT_MS = 1_000;
const PEERS = ['redlock 5', 'redis-semaphore'] as const;

export const peer = 'redlock 5 and the RedlockMutex of redis-semaphore, asking every 10 ms';

let started: Promise<readonly Server[]> | undefined;

function nodes(): Promise<readonly Server[]> {
  started ??= Promise.all(Array.from({ length: NODES }, () => startRedis()));
  return started;
}

export async function* contests(): AsyncIterable<Contest> {
  const ports = (await nodes()).map(({ port }) => port);
  await using ours = await userOf('holdfast', ports);
  // On nodes that have just started the first lock waits for one ttl.
  await ours.use('first');
  for (const side of PEERS) {
    await using theirs = await userOf(side, ports);
    yield* oneProcess(side, ours.use, theirs.use);
    yield* processes(side, ports);
  }
}

export async function* facts(): AsyncIterable<string> {
  const servers = await nodes();
  const ports = servers.map(({ port }) => port);
  for (const side of ['holdfast', ...PEERS] as const) {
    await using user = await userOf(side, ports);
    yield await twoHung(side, user.use, servers.slice(0, 2));
  }
  for (const server of servers) await server.stop();
}

function* oneProcess(side: Side, ours: Use, theirs: Use): Iterable<Contest> {
  yield {
    name: `acquire + release, uncontended; ${side}`,
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => ours('alone')),
    peer: () => repeat(SEQUENCE, () => theirs('alone')),
    goal: 1,
    pairs: PAIRS,
  };
  yield {
    name: `${NAMES} in flight on different names; ${side}`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => ours(`name:${at}`)),
    peer: () => together(NAMES, (at) => theirs(`name:${at}`)),
    goal: 1,
    pairs: PAIRS,
  };
  yield {
    name: `${LOCAL_WAITERS} waiters on one lock in one process; ${side}`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => ours('waiters')),
    peer: () => together(LOCAL_WAITERS, () => theirs('waiters')),
    goal: 1,
    pairs: SLOW_PAIRS,
  };
}

async function* processes(side: Side, ports: readonly number[]): AsyncIterable<Contest> {
  const start = (who: Side): Promise<Child[]> => {
    const setup = { ports, side: who, waiters: WAITERS_EACH };
    return Promise.all(Array.from({ length: PROCESSES }, () => Child.start('redlock/contender.ts', setup)));
  };
  const [ours, theirs] = [await start('holdfast'), await start(side)];
  yield {
    name: `${PROCESSES} processes × ${WAITERS_EACH} waiters on one lock; ${side}`,
    operations: PROCESSES * WAITERS_EACH,
    ours: () => Promise.all(ours.map((child) => child.ask('1'))),
    peer: () => Promise.all(theirs.map((child) => child.ask('1'))),
    goal: 1,
    pairs: SLOW_PAIRS,
  };
  await Promise.all([...ours, ...theirs].map((child) => child.end()));
}

/** How long one takes when two nodes answer no more: nobody should have to wait for them. */
async function twoHung(side: Side, use: Use, two: readonly Server[]): Promise<string> {
  const healthy = await median(() => use('hung'));
  for (const server of two) await server.pause();
  const hung = await median(() => Promise.race([use('hung'), setTimeout(LIMIT_MS)]));
  for (const server of two) server.resume();
  const figure = hung >= LIMIT_MS ? `more than ${LIMIT_MS}` : hung.toFixed(1);
  return `acquire + release while two of five nodes hang, ${side}: ${figure} ms, else ${healthy.toFixed(1)} ms`;
}

async function median(run: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < 9; round += 1) {
    const began = performance.now();
    await run();
    times.push(performance.now() - began);
  }
  return times.sort((one, other) => one - other)[4]!;
}
