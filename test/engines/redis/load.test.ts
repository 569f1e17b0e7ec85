/** Many waiters, many locks and crashes on a real server. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Holdfast, type Lease } from '../../../src/index.js';
import { redis } from '../../../src/engines/redis/index.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { waitFor } from '../../servers/wait.js';

/** Ten thousand leases are made, and hundreds of waiters begin, while sessions must not miss their beats. */
const TTL_MS = 4_000;
/** On top of a ttl, for machines that are busy with something else. */
const MARGIN_MS = 8_000;
/** For what is bound to happen. */
const WITHIN_MS = 30_000;

let server: Server;
let client: Redis;
const children: ChildProcess[] = [];

beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port);
});

afterEach(async () => {
  await Promise.all(children.splice(0).map(kill));
});

afterAll(async () => {
  client.disconnect();
  await server.stop();
});

/** A process with so many waiters, or the one that holds. */
async function start(namespace: string, waiters: number): Promise<ChildProcess> {
  const setup = { port: server.port, ttl: TTL_MS, name: 'job', namespace, waiters };
  const child = fork(join(import.meta.dirname, 'load-worker.mjs'), [JSON.stringify(setup)]);
  children.push(child);
  const failed = once(child, 'exit').then(([code]) => {
    throw new Error(`a process ended with ${code} before it said anything`);
  });
  expect((await Promise.race([once(child, 'message'), failed]))[0]).toBe(waiters === 0 ? 'holds' : 'waits');
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

function open(namespace: string, ttl = TTL_MS): Holdfast {
  return new Holdfast(redis(client, { epochGuard: false }), { ttl, namespace });
}

async function expectNothingLeft(namespace: string): Promise<void> {
  const state = `${namespace}:{0}:state`;
  expect(await client.keys(`${namespace}:*`)).toEqual([state]);
  expect(await client.hkeys(state)).toEqual(['shard']);
}

test('a thousand waiters of four processes are served once each, in order, when the holder is killed', async () => {
  const namespace = 'waiters';
  const locks = open(namespace);
  const holder = await start(namespace, 0);
  const waiting = await Promise.all(Array.from({ length: 4 }, () => start(namespace, 250)));
  const standing = async (): Promise<number> => (await locks.mutex('job').inspect()).claims.length;
  expect(await waitFor(async () => (await standing()) === 1_001, WITHIN_MS)).toBe(true);

  const ended = waiting.map((child) => once(child, 'exit'));
  await kill(holder);
  const served = (): Promise<number> => client.llen('served:job');
  expect(await waitFor(async () => (await served()) > 0, TTL_MS + MARGIN_MS), 'the next is served').toBe(true);

  await Promise.all(ended);
  const tokens = (await client.lrange('served:job', 0, -1)).map(BigInt);
  expect(tokens).toHaveLength(1_000);
  const sorted = [...tokens].sort((a, b) => (a < b ? -1 : 1));
  expect(tokens, 'one after the other, in the order of the line').toEqual(sorted);
  expect(new Set(tokens).size).toBe(1_000);
  expect(await standing()).toBe(0);
  await locks.close();
  await expectNothingLeft(namespace);
});

function tryOnce(user: Holdfast): Promise<Lease | undefined> {
  return user.mutex('job').tryAcquire();
}

test('users who only ever try get the lock after its holder has crashed', async () => {
  const namespace = 'tries';
  const holder = await start(namespace, 0);
  const users = Array.from({ length: 3 }, () => open(namespace));
  expect(await Promise.all(users.map(tryOnce))).toEqual([undefined, undefined, undefined]);

  await kill(holder);
  let leases: Lease[] = [];
  const tried = async (): Promise<boolean> => {
    leases = (await Promise.all(users.map(tryOnce))).filter((lease) => lease !== undefined);
    return leases.length > 0;
  };
  expect(await waitFor(tried, TTL_MS + MARGIN_MS), 'one of them gets it').toBe(true);
  expect(leases).toHaveLength(1);
  expect(leases[0]!.held).toBe(true);

  await leases[0]!.release();
  await Promise.all(users.map((user) => user.close()));
  await expectNothingLeft(namespace);
});

/** Two ttls and more, for half a minute in the matrix: a beat comes after 27 % to 33 % of a ttl. */
const BEATS = process.env['HOLDFAST_MATRIX'] === '1' ? 28 : 8;
const LOCKS = 10_000;

test('ten thousand held locks cost the server what one costs, and none is lost', async () => {
  const namespace = 'held';
  const locks = open(namespace);
  const leases: Lease[] = [];
  for (const names of thousands('lock')) {
    leases.push(...(await Promise.all(names.map((name) => locks.mutex(name).acquire()))));
  }

  const beats = countBeats();
  await client.config('RESETSTAT');
  expect(await waitFor(() => beats.answered >= BEATS, WITHIN_MS * 2), 'beats').toBe(true);
  const commands = await scriptCalls();
  beats.stop();
  // One more may be under way, in either direction.
  expect(Math.abs(commands - beats.answered), `${commands} script calls for ${BEATS} beats`).toBeLessThanOrEqual(1);

  expect(leases.filter(({ held }) => !held)).toEqual([]);
  expect(new Set(leases.map(({ token }) => token)).size).toBe(LOCKS);
  while (leases.length > 0) {
    const released = await Promise.all(leases.splice(0, 1_000).map((lease) => lease.release()));
    expect(released.every(Boolean), 'it was held until it was released').toBe(true);
  }
  await locks.close();
  await expectNothingLeft(namespace);
});

test('a user who leaves with ten thousand locks leaves nothing behind', async () => {
  const namespace = 'left';
  // close() gives up after a third of it, and a busy machine is slow to bury ten thousand claims.
  const locks = open(namespace, 60_000);
  for (const names of thousands('lock')) await Promise.all(names.map((name) => locks.mutex(name).acquire()));
  await locks.close();
  await expectNothingLeft(namespace);
});

function thousands(prefix: string): string[][] {
  return Array.from({ length: LOCKS / 1_000 }, (_, thousand) =>
    Array.from({ length: 1_000 }, (_, at) => `${prefix}:${thousand * 1_000 + at}`),
  );
}

function countBeats(): { readonly answered: number; stop(): void } {
  const answered = 'tracing:holdfast:beat:asyncStart';
  const count = (): void => {
    beats.answered += 1;
  };
  const beats = { answered: 0, stop: () => unsubscribe(answered, count) };
  subscribe(answered, count);
  return beats;
}

/** By clients: what a script calls is counted under its own name. */
async function scriptCalls(): Promise<number> {
  const stats = await client.info('commandstats');
  return [...stats.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)].reduce((sum, [, calls]) => sum + Number(calls), 0);
}
