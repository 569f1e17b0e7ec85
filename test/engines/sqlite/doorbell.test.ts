/** Who wakes a waiter. Two engines on one file, as two processes have them, under a clock that stands still: no look comes by itself. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Claim, Engine, Session, SessionListener } from '../../../src/core/engine.js';
import { sqlite } from '../../../src/engines/sqlite/index.js';
import { waitFor } from '../../servers/wait.js';
import { VirtualClock } from '../../unit/virtual-clock.js';

const { DatabaseSync } = createRequire(import.meta.url)(
  '@photostructure/sqlite',
) as typeof import('@photostructure/sqlite');

const PUSHES = process.platform === 'linux' || process.platform === 'win32';

let folder: string;
let engines: Engine[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  engines = [];
});

afterEach(async () => {
  await Promise.all(engines.map((engine) => engine[Symbol.asyncDispose]()));
  rmSync(folder, { recursive: true, force: true });
});

interface Opened {
  readonly session: Session;
  readonly clock: VirtualClock;
  /** Claims that were granted, and evicted, by message. */
  readonly told: string[];
}

async function open(id: string): Promise<Opened> {
  const clock = new VirtualClock();
  const engine = await sqlite(join(folder, 'locks.db')).connect({ namespace: '', clock });
  engines.push(engine);
  const told: string[] = [];
  const listener: SessionListener = {
    granted: (claim) => told.push(`${claim} granted`),
    lost: (claim) => told.push(`${claim} lost`),
    ended: () => {},
    hinted: () => {},
  };
  const session = await engine.open({ id, realm: '', ttlMs: 600_000, label: id }, listener);
  return { session, clock, told };
}

function claim(id: string, serial = 1): Claim {
  return { id, serial, line: { kind: 'lock', name: 'job' }, weight: 1, capacity: 1, wait: true, note: '' };
}

async function waits(name: string): Promise<Opened> {
  const waiter = await open(name);
  expect(await waiter.session.enter(claim(name))).toEqual({ state: 'waiting' });
  // With the first look, that of a bell which has begun to work, the timer is set anew.
  if (PUSHES) expect(await waitFor(() => waiter.clock.timersSet > 1, 10_000)).toBe(true);
  return waiter;
}

test.runIf(PUSHES)('whoever leaves wakes the next one, and nobody else', async () => {
  const holder = await open('first');
  await holder.session.enter(claim('first'));
  const [second, third] = [await waits('second'), await waits('third')];
  const before = third.clock.timersSet;
  await holder.session.leave(claim('first'));
  expect(await waitFor(() => second.told.length > 0, 10_000)).toBe(true);
  await second.session.leave(claim('second'));
  expect(await waitFor(() => third.told.length > 0, 10_000)).toBe(true);
  expect([second.told, third.told]).toEqual([['second granted'], ['third granted']]);
  // Its first look, when its bell began to work, and the one that found its grant.
  expect(third.clock.timersSet - before).toBeLessThanOrEqual(2);
});

test.runIf(PUSHES)('whoever evicts a waiter wakes it', async () => {
  const holder = await open('first');
  await holder.session.enter(claim('first'));
  const waiter = await waits('second');
  expect(await engines[0]!.evict!('job', 'second', 'why')).toBe(true);
  expect(await waitFor(() => waiter.told.length > 0, 10_000)).toBe(true);
  expect(waiter.told).toEqual(['second lost']);
});

test('a grant that nobody rang for is found by a look, soon by whoever is next and later by those behind', async () => {
  const holder = await open('first');
  await holder.session.enter(claim('first'));
  const [second, third] = [await waits('second'), await waits('third')];
  const database = new DatabaseSync(join(folder, 'locks.db'));
  database.exec(`PRAGMA busy_timeout = 10000; UPDATE claim SET held = 1 WHERE id = 'third'`);
  database.close();
  for (const { clock } of [second, third]) await clock.advance(1_000);
  expect(await waitFor(() => third.told.length > 0, 10_000)).toBe(true);
  expect([second.told, third.told]).toEqual([[], ['third granted']]);
});
