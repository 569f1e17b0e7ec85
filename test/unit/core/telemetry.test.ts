import { channel, tracingChannel } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { acquireIsObserved, publishLost, releaseIsObserved, traceBeat } from '../../../src/core/telemetry.js';
import { Holdfast } from '../../../src/index.js';
import { ScriptedEngine } from '../scripted-engine.js';
import { VirtualClock } from '../virtual-clock.js';

const TTL_MS = 10_000;

/** All that is published on all channels, in order. */
class Listening implements Disposable {
  readonly heard: { on: string; message: Record<string, unknown> }[] = [];
  readonly #stops: (() => void)[] = [];

  constructor() {
    for (const name of ['acquire', 'release', 'beat']) {
      const traced = tracingChannel(`holdfast:${name}`);
      const hear = (phase: string) => (message: unknown) => this.#hear(`${name}:${phase}`, message);
      const subscribers = {
        start: hear('start'),
        end: hear('end'),
        asyncStart: hear('asyncStart'),
        asyncEnd: hear('asyncEnd'),
        error: hear('error'),
      };
      traced.subscribe(subscribers);
      this.#stops.push(() => traced.unsubscribe(subscribers));
    }
    for (const name of ['granted', 'lost', 'evicted']) {
      const listener = (message: unknown): void => this.#hear(name, message);
      channel(`holdfast:${name}`).subscribe(listener);
      this.#stops.push(() => channel(`holdfast:${name}`).unsubscribe(listener));
    }
  }

  on(name: string): Record<string, unknown>[] {
    return this.heard.filter(({ on }) => on === name).map(({ message }) => message);
  }

  [Symbol.dispose](): void {
    for (const stop of this.#stops) stop();
  }

  #hear(on: string, message: unknown): void {
    this.heard.push({ on, message: message as Record<string, unknown> });
  }
}

let engine: ScriptedEngine;
let clock: VirtualClock;
let locks: Holdfast;

beforeEach(() => {
  engine = new ScriptedEngine();
  clock = new VirtualClock();
  locks = new Holdfast(engine, { clock, ttl: TTL_MS, label: 'billing' });
});

afterEach(() => locks.close());

describe('what happens is told to those who listen', () => {
  test('an acquire is traced from the call to the grant, with name, kind and label', async () => {
    using listening = new Listening();
    const { token } = await locks.mutex('order:42').acquire();
    const message = { name: 'order:42', kind: 'lock', label: expect.stringMatching(/^billing@.+:\d+$/) };
    expect(listening.on('acquire:start')).toEqual([expect.objectContaining(message)]);
    expect(listening.on('acquire:asyncEnd')).toEqual([expect.objectContaining(message)]);
    expect(listening.on('acquire:error')).toEqual([]);
    expect(listening.on('granted')).toEqual([{ ...message, token, waitedMs: 0 }]);
  });

  test('a grant says how long it took', async () => {
    using listening = new Listening();
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const acquiring = locks.semaphore('gpu', 4).acquire({ permits: 2 });
    await clock.advance(1_500);
    engine.session.listener.granted(engine.session.entered[0]!.id, 5n);
    const { token } = await acquiring;
    expect(listening.on('granted')).toEqual([
      expect.objectContaining({ name: 'gpu', kind: 'semaphore', token, waitedMs: 1_500 }),
    ]);
  });

  test('an acquire that fails is traced with its error, and one that was busy grants nothing', async () => {
    using listening = new Listening();
    engine.now({ enter: () => Promise.resolve({ state: 'refused' }) });
    await expect(locks.mutex('m').tryAcquire()).resolves.toBeUndefined();
    await expect(locks.mutex('m').acquire({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow(
      'enough',
    );
    expect(listening.on('acquire:start')).toHaveLength(2);
    expect(listening.on('acquire:error')).toEqual([
      expect.objectContaining({ name: 'm', error: expect.objectContaining({ message: 'enough' }) }),
    ]);
    expect(listening.on('granted')).toEqual([]);
  });

  test('a release is traced with its token', async () => {
    using listening = new Listening();
    const lease = await locks.mutex('m').acquire();
    await lease.release();
    await lease.release();
    expect(listening.on('release:start')).toEqual([
      expect.objectContaining({ name: 'm', kind: 'lock', token: lease.token }),
    ]);
    expect(listening.on('release:asyncEnd')).toEqual([expect.objectContaining({ name: 'm', result: true })]);
  });

  test('a beat is traced with how many claims it renews', async () => {
    using listening = new Listening();
    await locks.mutex('a').acquire();
    await locks.mutex('b').acquire();
    await clock.advance(TTL_MS / 3);
    expect(listening.on('beat:start')).toEqual([expect.objectContaining({ claims: 2 })]);
    expect(listening.on('beat:asyncEnd')).toHaveLength(1);
    engine.now({ beat: () => Promise.reject(new Error('down')) });
    await clock.advance(TTL_MS / 3);
    expect(listening.on('beat:error').length).toBeGreaterThan(0);
  });

  test('a loss is told once, with its reason and token', async () => {
    using listening = new Listening();
    const { token } = await locks.mutex('m').acquire();
    engine.hang();
    await clock.advance(TTL_MS);
    expect(listening.on('lost')).toEqual([{ name: 'm', kind: 'lock', token, loss: { reason: 'expired' } }]);
    expect(listening.on('evicted')).toEqual([]);
  });

  test('an eviction is told as a loss and as an eviction', async () => {
    using listening = new Listening();
    const { token } = await locks.mutex('m').acquire();
    const { listener, entered } = engine.session;
    listener.lost(entered[0]!.id, { reason: 'evicted', detail: 'stuck deploy' });
    const message = { name: 'm', kind: 'lock', token, loss: { reason: 'evicted', detail: 'stuck deploy' } };
    expect(listening.on('lost')).toEqual([message]);
    expect(listening.on('evicted')).toEqual([message]);
  });

  test('nothing that is told carries the id of a session: whoever knows it can end the session', async () => {
    using listening = new Listening();
    const lease = await locks.mutex('m').acquire();
    await clock.advance(TTL_MS);
    await lease.release();
    const told = JSON.stringify(listening.heard, (_, value: unknown) =>
      typeof value === 'bigint' ? `${value}` : value,
    );
    expect(told).toContain('"m"');
    expect(told).not.toContain(`"${engine.session.id}`);
  });
});

describe('what nobody listens to costs nothing', () => {
  test('messages are made only where somebody listens', () => {
    expect([acquireIsObserved(), releaseIsObserved()]).toEqual([false, false]);
    publishLost({ name: 'm', kind: 'lock', token: 1n, loss: { reason: 'evicted' } });
    using listening = new Listening();
    expect(listening.heard).toEqual([]);
    expect([acquireIsObserved(), releaseIsObserved()]).toEqual([true, true]);
  });

  test('a beat that nobody traces is the engine’s own promise', () => {
    const work = Promise.resolve(5);
    expect(traceBeat({ claims: 1 }, () => work)).toBe(work);
  });

  test('those who stop listening hear nothing more', async () => {
    const listening = new Listening();
    listening[Symbol.dispose]();
    const lease = await locks.mutex('m').acquire();
    await clock.advance(TTL_MS);
    await lease.release();
    expect(listening.heard).toEqual([]);
  });
});
