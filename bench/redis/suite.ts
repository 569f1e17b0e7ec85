/**
 * The Redis engine against the least that Redis can do (redis-raw.ts), on the same kind of client and the same server.
 * The peer has no order, no sessions, no renewal and no tokens, and forgets a lock of a process that takes too long.
 */
import { setTimeout } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Holdfast, type Lease } from 'holdfast';
import { redis } from 'holdfast/redis';
import { startRedis } from '../../test/servers/redis.js';
import type { Server } from '../../test/servers/server.js';
import { useOurs } from '../memory/suite.js';
import { type Contest, repeat, together } from '../measure.js';
import { Child } from '../child.js';
import { RawLocks } from './raw.js';

const SEQUENCE = 50;
const NAMES = 64;
const LOCAL_WAITERS = 50;
const PROCESSES = 4;
const WAITERS_EACH = 8;
const TURNS = 2;
const HANDOFFS = 400;
const LINES = [10, 100, 1_000, 10_000];
const HELD = 10_000;

export const peer = 'SET NX PX and a compare-and-delete script, polling every 10 ms';

let started: Promise<Server> | undefined;

/** One for contests and facts: on a young server the epoch guard lets the first lock wait for one ttl. */
function server(): Promise<Server> {
  started ??= startRedis();
  return started;
}

export async function* contests(): AsyncIterable<Contest> {
  const { port } = await server();
  const [ourClient, rawClient] = [new Redis(port), new Redis(port)];
  const locks = new Holdfast(redis(ourClient));
  await useOurs(locks.mutex('first'));
  const raw = await RawLocks.open(rawClient);
  yield selfCheck(raw);
  yield uncontended(locks, raw);
  yield manyNames(locks, raw);
  yield localWaiters(locks, raw);
  await locks.close();
  ourClient.disconnect();
  rawClient.disconnect();
  yield* processes(port);
}

/** The peer on both sides: what is not 1.0 here is noise, and every other row has as much of it. */
function selfCheck(raw: RawLocks): Contest {
  const side = (): Promise<void> => repeat(SEQUENCE, () => raw.use('raw'));
  return { name: 'self-check: the peer against itself', operations: SEQUENCE, ours: side, peer: side };
}

function uncontended(locks: Holdfast, raw: RawLocks): Contest {
  const lock = locks.mutex('uncontended');
  return {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(lock)),
    peer: () => repeat(SEQUENCE, () => raw.use('raw')),
    goal: 0.9,
  };
}

function manyNames(locks: Holdfast, raw: RawLocks): Contest {
  const ours = Array.from({ length: NAMES }, (_, at) => locks.mutex(`name:${at}`));
  return {
    name: `${NAMES} in flight on different names`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => useOurs(ours[at]!)),
    peer: () => together(NAMES, (at) => raw.use(`raw:${at}`)),
    goal: 0.95,
  };
}

function localWaiters(locks: Holdfast, raw: RawLocks): Contest {
  const lock = locks.mutex('waiters');
  return {
    name: `${LOCAL_WAITERS} waiters on one lock in one process`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => useOurs(lock)),
    peer: () => together(LOCAL_WAITERS, () => raw.use('raw:waiters')),
    goal: 30,
  };
}

async function* processes(port: number): AsyncIterable<Contest> {
  const ours = await contenders(port, { raw: false, cohort: true });
  const raws = await contenders(port, { raw: true, cohort: true });
  yield {
    name: `${PROCESSES} processes × ${WAITERS_EACH} waiters on one lock`,
    operations: PROCESSES * WAITERS_EACH * TURNS,
    ours: () => Promise.all(ours.map((child) => child.ask(`${TURNS}`))),
    peer: () => Promise.all(raws.map((child) => child.ask(`${TURNS}`))),
    goal: 6,
  };
  await Promise.all([...ours, ...raws].map((child) => child.end()));
}

function contenders(port: number, side: { raw: boolean; cohort: boolean }): Promise<Child[]> {
  const setup = { port, ...side, waiters: WAITERS_EACH };
  return Promise.all(Array.from({ length: PROCESSES }, () => Child.start('redis/contender.ts', setup)));
}

// --- figures that are no ratios of speeds -----------------------------------------------------------------------------

export async function* facts(): AsyncIterable<string> {
  const running = await server();
  yield await handOff(running.port);
  yield await commandsBetweenProcesses(running.port);
  yield await commandsInOneProcess(running.port);
  yield await growth(running.port);
  yield await heldLocks(running.port);
  await running.stop();
}

/** From the release in one process to the lease in the other, by what a bare message between the same two takes. */
async function handOff(port: number): Promise<string> {
  const [a, b] = await Promise.all([
    Child.start('redis/peer.ts', { port, inbox: 'a', outbox: 'b' }),
    Child.start('redis/peer.ts', { port, inbox: 'b', outbox: 'a' }),
  ]);
  const ours: number[] = [];
  const raw: number[] = [];
  await a.ask('enter');
  for (let round = 0; round < HANDOFFS; round += 1) {
    const [holder, next] = round % 2 === 0 ? [a, b] : [b, a];
    await next.ask('enter');
    ours.push(await microseconds(holder.ask('release'), () => next.ask('granted')));
    raw.push(await microseconds(holder.ask('publish'), () => next.ask('heard')));
  }
  await Promise.all([a.end(), b.end()]);
  const ratio = median(ours) / median(raw);
  const figure = `${median(ours).toFixed(0)} µs, a bare message ${median(raw).toFixed(0)} µs: ${ratio.toFixed(2)} ×`;
  return goal(`hand-off between two processes, p50: ${figure}`, ratio, '1.5 ×', 1.5);
}

/** Between two moments that two processes tell. */
async function microseconds(from: Promise<unknown>, to: () => Promise<unknown>): Promise<number> {
  const sentAt = BigInt(String(await from));
  return Number(BigInt(String(await to())) - sentAt) / 1_000;
}

async function commandsBetweenProcesses(port: number): Promise<string> {
  const children = await contenders(port, { raw: false, cohort: false });
  const turns = 50;
  const commands = await counted(port, () => Promise.all(children.map((child) => child.ask(`${turns}`))));
  await Promise.all(children.map((child) => child.end()));
  const each = commands / (PROCESSES * WAITERS_EACH * turns);
  const what = `commands per acquisition, ${PROCESSES} × ${WAITERS_EACH} waiters without cohort`;
  return goal(`${what}: ${each.toFixed(2)}`, each, '2.1', 2.1);
}

async function commandsInOneProcess(port: number): Promise<string> {
  const client = new Redis(port);
  const locks = new Holdfast(redis(client));
  const lock = locks.mutex('cohort');
  await useOurs(lock);
  const turns = 20;
  const commands = await counted(port, () => together(LOCAL_WAITERS, () => repeat(turns, () => useOurs(lock))));
  await locks.close();
  client.disconnect();
  const each = commands / (LOCAL_WAITERS * turns);
  return goal(
    `commands per acquisition, ${LOCAL_WAITERS} waiters in one process: ${each.toFixed(3)}`,
    each,
    '0.2',
    0.2,
  );
}

/** What a hand-off costs by the length of the line; the lines take turns, so that a slow moment hits all of them. */
async function growth(port: number): Promise<string> {
  const children = await Promise.all(LINES.map((waiters) => Child.start('redis/line.ts', { port, waiters })));
  const turns = 100;
  const costs = LINES.map((): number[] => []);
  for (let round = -3; round < 25; round += 1) {
    for (const [at, child] of children.entries()) {
      const ms = Number(await child.ask(`${turns}`));
      if (round >= 0) costs[at]!.push((ms * 1_000) / turns);
    }
  }
  await Promise.all(children.map((child) => child.end()));
  const medians = costs.map(median);
  const figures = LINES.map((waiters, at) => `${waiters.toLocaleString('en')}: ${medians[at]!.toFixed(0)} µs`);
  const ratio = medians.at(-1)! / medians[0]!;
  const what = `a hand-off by the number of waiters without cohort: ${figures.join(', ')}; ${ratio.toFixed(2)} ×`;
  return goal(what, ratio, '1.3 ×', 1.3);
}

async function heldLocks(port: number): Promise<string> {
  const client = new Redis(port);
  const locks = new Holdfast(redis(client), { namespace: 'held' });
  const leases: Lease[] = [];
  while (leases.length < HELD) {
    const names = Array.from({ length: 1_000 }, (_, at) => `${leases.length + at}`);
    leases.push(...(await Promise.all(names.map((name) => locks.mutex(name).acquire()))));
  }
  const seconds = 10;
  const commands = await counted(port, () => setTimeout(seconds * 1_000));
  const kept = leases.filter(({ held }) => held).length;
  await locks.close();
  client.disconnect();
  const each = commands / seconds;
  const what = `${HELD.toLocaleString('en')} held locks (${kept.toLocaleString('en')} kept): ${each.toFixed(1)} commands/s`;
  return goal(what, each, '2/s', 2);
}

/** The commands that clients sent meanwhile. What a script calls is counted under names of its own. */
async function counted(port: number, run: () => Promise<unknown>): Promise<number> {
  const client = new Redis(port);
  await client.config('RESETSTAT');
  await run();
  const stats = await client.info('commandstats');
  client.disconnect();
  return [...stats.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)].reduce((sum, [, calls]) => sum + Number(calls), 0);
}

function goal(what: string, figure: number, most: string, mostFigure: number): string {
  return `${what} (goal ≤ ${most}: ${figure <= mostFigure ? 'met' : 'missed'})`;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
