/**
 * Redlock on five real servers in random bad times: killed and restarted nodes, clocks that jump, slow links, a user whose
 * own clock is wrong. Whatever happens: tokens grow, no lock is returned that has run out, and no two users believe to
 * hold one. A failure prints its seed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Clock, systemClock } from '../../../src/core/clock.js';
import { redlock } from '../../../src/engines/redis/index.js';
import { AcquireTimeoutError, EngineError, Holdfast, type Lease, LeaseLostError } from '../../../src/index.js';
import { CLOCK_SHIM_NEEDS } from '../../servers/clock-shim.js';
import type { FaultProxy } from '../../servers/fault-proxy.js';
import { seededRandom } from '../../servers/seeded-random.js';
import { isAwake } from '../../servers/server-group.js';
import { type RedlockNode, RedlockNodes } from './redlock-nodes.js';

const TTL_MS = 500;
const NAMES = ['one', 'two'];
const LONG = process.env['HOLDFAST_MATRIX'] !== undefined;
const RUN_MS = LONG ? 120_000 : 12_000;
/** Fewer would say nothing. */
const ENOUGH_GRANTS = 10;
/** How much longer it may take to get there. */
const PATIENCE_MS = 60_000;
const SEED = LONG ? Date.now() % 1_000_000 : 7;

const skewed: Clock = { ...systemClock, wall: () => Date.now() - 40_000 };

interface Scene {
  readonly random: () => number;
  readonly nodes: readonly RedlockNode[];
  /** Of each user, one to each node. */
  readonly links: readonly (readonly FaultProxy[])[];
}

type Blow = (scene: Scene) => Promise<void>;

function pick<T>(random: () => number, items: readonly T[]): T {
  return items[Math.floor(random() * items.length)]!;
}

/** One of a few, so that a majority stays. */
function victim({ random, nodes }: Scene): RedlockNode {
  return pick(random, nodes.slice(0, 2));
}

const kill: Blow = async (scene) => {
  const { server } = victim(scene);
  if (isAwake(server)) await server.kill();
};

const restart: Blow = async (scene) => {
  await pick(scene.random, scene.nodes).restart();
};

const restartEmpty: Blow = async (scene) => {
  await pick(scene.random, scene.nodes).restartEmpty();
};

/** One user has its locks on three nodes only, and one of these forgets: another could have three now. */
const forget: Blow = async ({ random, nodes, links }) => {
  const own = pick(random, links);
  for (const proxy of own.slice(3)) proxy.set({ mode: 'cut' });
  await sleep(random() * TTL_MS);
  await pick(random, nodes.slice(0, 3)).restartEmpty();
  await sleep(random() * TTL_MS);
  for (const proxy of own.slice(3)) proxy.heal();
};

const hang: Blow = async (scene) => {
  const { server } = victim(scene);
  if (!isAwake(server)) return;
  await server.pause();
  await sleep(scene.random() * 2 * TTL_MS);
  server.resume();
};

const slow: Blow = async ({ random, links }) => {
  const proxy = pick(random, links.flat());
  proxy.set({ mode: 'delay', ms: random() * TTL_MS, jitterMs: 20 });
  await sleep(random() * TTL_MS);
  proxy.heal();
};

const loseReplies: Blow = async ({ random, links }) => {
  const proxy = pick(random, links.flat());
  proxy.set({ mode: 'lose', lose: 'replies' });
  await sleep(random() * TTL_MS);
  proxy.heal();
};

/** Some nodes, perhaps most, jump ahead, and come back. */
const jump: Blow = async ({ random, nodes }) => {
  const some = nodes.filter(() => random() < 0.6);
  const ms = random() * 4 * TTL_MS;
  for (const { clock } of some) clock?.jumpWall(ms);
  await sleep(random() * 4 * TTL_MS);
  for (const { clock } of some) clock?.jumpWall(-ms);
};

/** What has been granted of one name. */
class Ledger {
  grants = 0;
  readonly #leases = new Set<Lease>();
  #highest = 0n;

  granted(lease: Lease): void {
    this.grants += 1;
    // Before it is asked whether it is held: it may run out at any moment.
    const { remaining } = lease;
    if (!lease.held) return;
    const believers = [...this.#leases].filter(({ held }) => held);
    expect(believers.map(({ token }) => token)).toEqual([]);
    expect(lease.token).toBeGreaterThan(this.#highest);
    expect(remaining).toBeGreaterThan(0);
    this.#highest = lease.token;
    this.#leases.add(lease);
  }

  left(lease: Lease): void {
    this.#leases.delete(lease);
  }
}

async function play(blows: readonly Blow[]): Promise<void> {
  await using five = await RedlockNodes.start(5);
  const random = seededRandom(SEED);
  const ledgers = new Map(NAMES.map((name) => [name, new Ledger()]));
  const links = [await five.proxies(), await five.proxies(), await five.proxies()];
  const users = links.map(
    (proxies, at) =>
      new Holdfast(redlock(five.clients(proxies.map(({ port }) => port))), {
        ttl: TTL_MS,
        ...(at === 2 && { clock: skewed }),
      }),
  );
  const run: { over: boolean; failure?: unknown } = { over: false };
  const work = async (locks: Holdfast): Promise<void> => {
    while (!run.over) {
      const name = pick(random, NAMES);
      const ledger = ledgers.get(name)!;
      const lease = await locks.mutex(name).acquire({ timeout: 3_000 }).catch(expected);
      if (!lease) continue;
      ledger.granted(lease);
      await sleep(random() * (random() < 0.3 ? 2 * TTL_MS : 20));
      await lease.release();
      ledger.left(lease);
    }
  };
  const workers = users.flatMap((locks) => [work(locks), work(locks)]);
  void Promise.all(workers).catch((error: unknown) => {
    run.failure = error;
  });
  try {
    const scene: Scene = { random, nodes: five.nodes, links };
    const began = performance.now();
    const granted = (): number => [...ledgers.values()].reduce((sum, { grants }) => sum + grants, 0);
    // A machine that is busy with something else has granted little by then, and goes on.
    const isOver = (): boolean => {
      const ranMs = performance.now() - began;
      return ranMs > RUN_MS + PATIENCE_MS || (ranMs > RUN_MS && granted() > ENOUGH_GRANTS);
    };
    while (!isOver() && run.failure === undefined) {
      await pick(random, blows)(scene);
      await sleep(random() * TTL_MS);
      // Those that are down come back now and then.
      if (random() < 0.3) for (const { server } of five.nodes) if (!server.running) await server.restart();
    }
    run.over = true;
    await Promise.all(workers);
    for (const { server } of five.nodes) if (!server.running) await server.restart();
    for (const locks of users) {
      await using lease = await locks.mutex(NAMES[0]!).acquire({ timeout: '30s' });
      ledgers.get(NAMES[0]!)!.granted(lease);
      ledgers.get(NAMES[0]!)!.left(lease);
    }
    console.log(`redlock in bad times: ${granted()} grants, seed ${SEED}`);
    expect(granted()).toBeGreaterThan(ENOUGH_GRANTS);
  } catch (error) {
    throw new Error(`seed ${SEED}`, { cause: error });
  } finally {
    run.over = true;
    await Promise.allSettled(workers);
    await Promise.all(users.map((locks) => locks.close()));
  }
}

/** What may be said on a bad day. */
function expected(error: unknown): undefined {
  const fine = [AcquireTimeoutError, EngineError, LeaseLostError].some((kind) => error instanceof kind);
  if (!fine) throw error;
}

test(
  'nodes hang, die and come back with all they knew; links are slow; clocks jump ahead and back',
  async ({ skip }) => {
    if (process.platform !== 'linux') skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    await play([kill, restart, hang, slow, loseReplies, jump]);
  },
  RUN_MS + PATIENCE_MS + 120_000,
);

test(
  'nodes lose their memory',
  async () => {
    await play([forget, forget, kill, restartEmpty, restart, hang, slow, loseReplies]);
  },
  RUN_MS + PATIENCE_MS + 120_000,
);
