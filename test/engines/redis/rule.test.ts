/** The scripts on a real server against the one rule, in random runs. A failure prints its seed and the shortest run. */
import * as fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { redis } from '../../../src/engines/redis/index.js';
import { Actor } from '../../../src/conformance/protocol.js';
import { CLOCK_SHIM_NEEDS, type ClockShim, clockShim } from '../../servers/clock-shim.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { waitFor } from '../../servers/wait.js';
import { Stage } from './rule-stage.js';
import { LEAP_MS, type Step, steps } from './rule-steps.js';

/** As many runs as fit into this; when one has failed, so long for the search for a shorter one. */
const SEARCH_MS = 60_000;
const SHRINK_MS = 20_000;

interface Scene {
  readonly clients: readonly Redis[];
  readonly epochGuard: boolean;
  leap(): void;
}

let runs = 0;

/** Two strangers, each with a client and two sessions of its own. */
async function play(scene: Scene, run: readonly Step[]): Promise<void> {
  runs += 1;
  const namespace = `run-${runs}`;
  const sources = scene.clients.map((client) => redis(client, { epochGuard: scene.epochGuard }));
  const engines = await Promise.all(sources.map((source) => source.connect({ namespace, clock: systemClock })));
  try {
    const stage = new Stage(engines);
    for (const engine of [0, 1, 0, 1]) await stage.open(engine, engine);
    for (const step of run) {
      if (step.do === 'batch') await stage.perform(step);
      else if (step.do === 'open') await stage.open(step.engine, step.kind);
      else {
        scene.leap();
        stage.leap();
      }
    }
    await stage.end();
    const state = `${namespace}:{0}:state`;
    expect(await scene.clients[0]!.keys(`${namespace}:*`)).toEqual([state]);
    expect(await scene.clients[0]!.hkeys(state)).toEqual(['shard']);
  } finally {
    await Promise.all(engines.map((engine) => engine[Symbol.asyncDispose]()));
  }
}

async function search(scene: Scene, options: Parameters<typeof steps>[0]): Promise<void> {
  const end = performance.now() + SEARCH_MS;
  let failed = false;
  const property = fc.asyncProperty(steps(options), async (run) => {
    if (!failed && performance.now() > end) return;
    try {
      await play(scene, run);
    } catch (error) {
      failed = true;
      throw error;
    }
  });
  await fc.assert(property, { numRuns: 20_000, interruptAfterTimeLimit: SHRINK_MS });
}

describe('the scripts', () => {
  let server: Server;
  let scene: Scene;

  beforeAll(async () => {
    server = await startRedis();
    const clients = [new Redis(server.port), new Redis(server.port)];
    scene = { clients, epochGuard: false, leap: () => {} };
  });

  afterAll(async () => {
    for (const client of scene.clients) client.disconnect();
    await server.stop();
  });

  test('do after every operation what the rule says, tell each new holder once, and leave nothing behind', async () => {
    await search(scene, { operationsAtOnce: 1, leaps: false });
  });

  test('do what is asked for in one turn as if it came one after the other', async () => {
    await search(scene, { operationsAtOnce: 12, leaps: false });
  });

  test('tell a beat of every eviction before it, also of one in the same turn', async () => {
    const source = redis(scene.clients[0]!, { epochGuard: false });
    const engine = await source.connect({ namespace: 'evictions', clock: systemClock });
    const session = await Actor.open(engine, { id: 'beats', realm: '', ttlMs: 60_000, label: 'beats' }, 'beats');
    const { claim: first } = await session.hold({ name: 'first' });
    const { claim: second } = await session.hold({ name: 'second' });
    const held = [first, second];
    await engine.evict!('first', first.id, 'before');
    // Another subscription on the same connection: the message about it has come.
    await Actor.open(engine, { id: 'other', realm: '', ttlMs: 60_000, label: 'other' }, 'other');
    await Promise.all([
      session.beat({ held }),
      engine.evict!('first', first.id, 'now'),
      engine.evict!('second', second.id, 'now'),
      session.beat({ held }),
    ]);
    expect([session.lossOf(first), session.lossOf(second)]).toEqual(
      held.map(() => ({ reason: 'evicted', detail: 'now' })),
    );
    await session.session.close();
    await engine[Symbol.asyncDispose]();
  });
});

describe('the scripts, when sessions die', () => {
  let clock: ClockShim | undefined;
  let server: Server;
  let scene: Scene;

  beforeAll(async () => {
    clock = await clockShim();
    if (!clock) return;
    server = await startRedis({ env: clock.env });
    const clients = [new Redis(server.port), new Redis(server.port)];
    scene = { clients, epochGuard: true, leap: () => clock!.jumpWall(LEAP_MS) };
    // An old server, whose epoch guard is over.
    clock.jumpWall(600_000);
    const old = async (): Promise<boolean> =>
      Number(/uptime_in_seconds:(\d+)/.exec(await clients[0]!.info('server'))?.[1]) >= 600;
    expect(await waitFor(old, 10_000)).toBe(true);
  });

  afterAll(async () => {
    for (const client of scene?.clients ?? []) client.disconnect();
    await server?.stop();
    clock?.[Symbol.dispose]();
  });

  test('free what they had, hand it on by the rule, and tell them that they are gone', async ({ skip }) => {
    if (!clock) skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await search(scene, { operationsAtOnce: 4, leaps: true });
  });
});
