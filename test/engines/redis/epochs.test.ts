/**
 * A new epoch, step by step: the server was restarted with what it had saved, which may be less than it had granted. Its
 * clock jumps, so that nobody has to wait for the guard to end.
 */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim, Engine } from '../../../src/core/engine.js';
import { redis } from '../../../src/engines/redis/index.js';
import { Actor } from '../../../src/conformance/protocol.js';
import { CLOCK_SHIM_NEEDS, type ClockShim, clockShim } from '../../servers/clock-shim.js';
import { startRedis } from '../../servers/redis.js';
import { command, info } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { connect, until } from './faults-kit.js';

/** The clock jumps over it; a slow machine does not get there. */
const TTL_MS = 600_000;
/** Older than any guard. */
const AGE_MS = 10 * TTL_MS;

/** A server that has run for a while, and an engine with the guard. */
class Scene implements AsyncDisposable {
  readonly clock: ClockShim;
  readonly server: Server;
  readonly engine: Engine;
  readonly #client: Disposable;

  static async start(skip: (note: string) => never, ageMs = AGE_MS): Promise<Scene> {
    const clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
    const server = await startRedis({ env: clock.env });
    clock.jumpWall(ageMs);
    await until('the server calls itself so old', async () => (await uptimeMs(server)) >= ageMs);
    const client = connect(server.port);
    const engine = await redis(client).connect({ namespace: 'epochs', clock: systemClock });
    return new Scene({ clock, server, engine, client });
  }

  private constructor(parts: Pick<Scene, 'clock' | 'server' | 'engine'> & { readonly client: Disposable }) {
    this.clock = parts.clock;
    this.server = parts.server;
    this.engine = parts.engine;
    this.#client = parts.client;
  }

  open(alias: string): Promise<Actor> {
    return Actor.open(this.engine, { id: `session-of-${alias}`, realm: '', ttlMs: TTL_MS, label: alias }, alias);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.engine[Symbol.asyncDispose]();
    this.#client[Symbol.dispose]();
    await this.server.stop();
    this.clock[Symbol.dispose]();
  }
}

async function uptimeMs({ port }: Server): Promise<number> {
  return Number((await info(port, 'INFO', 'server')).get('uptime_in_seconds')) * 1_000;
}

/** Kills the server after `unsaved`, and starts it again with what it knew before. */
async function forgetting({ server, engine }: Scene, unsaved: () => Promise<void>): Promise<void> {
  await command(server.port, 'SAVE');
  await unsaved();
  await server.restart();
  await until('the client is connected again', async () => {
    try {
      await engine.evict!('nothing', 'nobody', '');
      return true;
    } catch {
      return false;
    }
  });
}

/** They beat, so that they live, until nobody can believe any more in what the server has forgotten. */
async function guardEnds(
  { clock }: Scene,
  living: ReadonlyMap<Actor, { held?: Claim[]; waiting?: Claim[] }>,
): Promise<void> {
  for (const ms of [TTL_MS / 2, TTL_MS / 2 + 1]) {
    clock.jumpWall(ms);
    for (const [actor, having] of living) expect((await actor.beat(having)).alive).toBe(true);
  }
}

describe.concurrent('a server that was restarted', () => {
  test('gives no token again that it has given and forgotten', async ({ skip }) => {
    // It is guarded since its own start. Then tokens have leapt farther ahead than the guard lasts, and the clock, which
    // else would let them grow, is behind them.
    await using stage = await Scene.start(skip, TTL_MS / 2);
    const [holder, next] = [await stage.open('holder'), await stage.open('next')];
    // Servers count their age in whole seconds, and we add one to be sure.
    stage.clock.jumpWall(TTL_MS / 2 + 3_000);
    expect(await next.beat()).toEqual({ alive: true });
    let forgotten = 0n;
    await forgetting(stage, async () => {
      forgotten = (await holder.hold({ name: 'job' })).token;
    });
    // It stands there while the guard lasts, and has its token from then.
    const waiting = await next.queue({ name: 'job' });
    await guardEnds(stage, new Map([[next, { waiting: [waiting] }]]));
    const place = await next.session.enter(waiting);
    expect(place.state === 'held' && place.token).toBeGreaterThan(forgotten);
  });

  test('grants a free lock to nobody until the guard ends', async ({ skip }) => {
    await using stage = await Scene.start(skip);
    const [holder, next] = [await stage.open('holder'), await stage.open('next')];
    await forgetting(stage, async () => {
      await holder.hold({ name: 'job' });
    });
    // Who comes first notices that the epoch is new; who comes second finds it known.
    expect(await next.couldHold({ name: 'job' })).toBe(false);
    expect(await next.couldHold({ name: 'job' })).toBe(false);
    await guardEnds(stage, new Map([[next, {}]]));
    expect(await next.couldHold({ name: 'job' })).toBe(true);
  });

  test('hands nothing over until the guard ends', async ({ skip }) => {
    await using stage = await Scene.start(skip);
    const [holder, next] = [await stage.open('holder'), await stage.open('next')];
    const { claim } = await holder.hold({ name: 'job' });
    const waiting = await next.queue({ name: 'job' });
    await forgetting(stage, async () => {});
    expect(await holder.session.leave(claim)).toBe(true);
    expect(await next.session.enter(waiting)).toEqual({ state: 'waiting', guarded: true });
    await guardEnds(stage, new Map([[next, { waiting: [waiting] }]]));
    expect((await next.session.enter(waiting)).state).toBe('held');
  });

  test('ends its guard after one ttl, though its clock was set back meanwhile', async ({ skip }) => {
    await using stage = await Scene.start(skip);
    const next = await stage.open('next');
    await forgetting(stage, async () => {});
    expect(await next.couldHold({ name: 'job' })).toBe(false);
    stage.clock.jumpWall(-AGE_MS);
    expect(await next.couldHold({ name: 'job' })).toBe(false);
    await guardEnds(stage, new Map([[next, {}]]));
    expect(await next.couldHold({ name: 'job' })).toBe(true);
  });
});

describe.concurrent('a server that lost one of the keys', () => {
  test.for(['sessions', 'state', 'order'])('%s: grants to nobody until the guard ends', async (key, { skip }) => {
    await using stage = await Scene.start(skip);
    const holder = await stage.open('holder');
    await holder.hold({ name: 'job' });
    await command(stage.server.port, 'DEL', `epochs:{0}:${key}`);
    const next = await stage.open('next');
    expect(await next.couldHold({ name: 'job' })).toBe(false);
    await guardEnds(stage, new Map([[next, {}]]));
    expect(await next.couldHold({ name: 'job' })).toBe(true);
  });
});
