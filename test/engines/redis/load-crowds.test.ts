/**
 * One script call that is about thousands: who comes by after a crowd has died, or frees one that waits. Lua hands at
 * most some 8,000 values to a command, and a script that fails half-way is not undone.
 */
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim, Engine, EngineLine, LineRef, Session } from '../../../src/core/engine.js';
import { ALL } from '../../../src/core/line.js';
import { redis } from '../../../src/engines/redis/index.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { waitFor } from '../../servers/wait.js';

const LONG_MS = 600_000;
const SHORT_MS = 3_000;
const WITHIN_MS = 30_000;

const LOCK: LineRef = { kind: 'lock', name: 'job' };
const SEMAPHORE: LineRef = { kind: 'semaphore', name: 'gpu' };

let server: Server;
let client: Redis;
let engine: Engine;
let tests = 0;
let serials = 0;
let granted: Set<string>;

beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port);
});

beforeEach(async () => {
  tests += 1;
  granted = new Set();
  const source = redis(client, { epochGuard: false });
  engine = await source.connect({ namespace: `crowd-${tests}`, clock: systemClock });
});

afterEach(() => engine[Symbol.asyncDispose]());

afterAll(async () => {
  client.disconnect();
  await server.stop();
});

function open(ttlMs: number): Promise<Session> {
  const listener = { granted: (id: string) => void granted.add(id), lost: () => {}, ended: () => {}, hinted: () => {} };
  return engine.open({ id: systemClock.id(), realm: '', ttlMs, label: 'crowd' }, listener);
}

function claim(line: LineRef, weight: number, capacity: number, wait = true): Claim {
  serials += 1;
  return { id: `claim-${serials}`, serial: serials, line, weight, capacity, wait, note: '' };
}

/** So many claims of one session, which dies after it has entered the last one. */
async function enterAndDie(count: number, make: () => Claim, state: 'held' | 'waiting'): Promise<void> {
  const session = await open(SHORT_MS);
  for (let entered = 0; entered < count; entered += 1_000) {
    const claims = Array.from({ length: Math.min(1_000, count - entered) }, make);
    const places = await Promise.all(claims.map((one) => session.enter(one)));
    expect(places.every((place) => place.state === state)).toBe(true);
    expect((await session.beat({ count: 0, held: 0, checksum: 0, unsettled: [] })).alive).toBe(true);
  }
  const diesAt = (await serverMs()) + SHORT_MS;
  expect(await waitFor(async () => (await serverMs()) > diesAt, WITHIN_MS)).toBe(true);
}

async function serverMs(): Promise<number> {
  const [seconds, microseconds] = await client.time();
  return Number(seconds) * 1_000 + Number(microseconds) / 1_000;
}

async function view({ kind, name }: LineRef): Promise<EngineLine | undefined> {
  for await (const line of engine.inspect!({ name })) if (line.kind === kind) return line;
  return undefined;
}

async function expectStates(line: LineRef, expected: Readonly<Record<string, 'held' | 'waiting'>>): Promise<void> {
  const claims = (await view(line))?.claims ?? [];
  expect(Object.fromEntries(claims.map(({ id, state }) => [id, state]))).toEqual(expected);
}

test('a leave passes nine thousand waiting claims of a dead session', async () => {
  const [holder, next] = [await open(LONG_MS), await open(LONG_MS)];
  const first = claim(LOCK, ALL, ALL);
  expect((await holder.enter(first)).state).toBe('held');
  await enterAndDie(9_000, () => claim(LOCK, ALL, ALL), 'waiting');
  const last = claim(LOCK, ALL, ALL);
  expect((await next.enter(last)).state).toBe('waiting');
  expect(await holder.leave(first)).toBe(true);
  expect(await waitFor(() => granted.has(last.id), WITHIN_MS)).toBe(true);
  await expectStates(LOCK, { [last.id]: 'held' });
});

test('an enter frees a line of nine thousand held claims of a dead session', async () => {
  await enterAndDie(9_000, () => claim(SEMAPHORE, 1, 10_000), 'held');
  const next = await open(LONG_MS);
  const all = claim(SEMAPHORE, 10_000, 10_000, false);
  expect((await next.enter(all)).state).toBe('held');
  await expectStates(SEMAPHORE, { [all.id]: 'held' });
});

test('a leave grants to nine thousand readers of one session', async () => {
  const [writer, readers] = [await open(LONG_MS), await open(LONG_MS)];
  const write = claim(LOCK, ALL, ALL);
  expect((await writer.enter(write)).state).toBe('held');
  const reads = Array.from({ length: 9_000 }, () => claim(LOCK, 1, ALL));
  await Promise.all(reads.map((read) => readers.enter(read)));
  expect(await writer.leave(write)).toBe(true);
  expect(await waitFor(() => granted.size === reads.length, WITHIN_MS)).toBe(true);
  const claims = (await view(LOCK))!.claims;
  expect(claims.map(({ id, state }) => `${id} ${state}`)).toEqual(reads.map(({ id }) => `${id} held`));
});

test('a leave grants to the readers of five thousand sessions', async () => {
  const writer = await open(LONG_MS);
  const write = claim(LOCK, ALL, ALL);
  expect((await writer.enter(write)).state).toBe('held');
  const readers = await Promise.all(
    Array.from({ length: 5_000 }, async () => ({ session: await open(LONG_MS), read: claim(LOCK, 1, ALL) })),
  );
  const places = await Promise.all(readers.map(({ session, read }) => session.enter(read)));
  expect(places.every(({ state }) => state === 'waiting')).toBe(true);
  expect(await writer.leave(write)).toBe(true);
  expect(await waitFor(() => granted.size === readers.length, WITHIN_MS)).toBe(true);
  expect((await view(LOCK))!.claims.every(({ state }) => state === 'held')).toBe(true);
});
