/** Leading and observing through outages that last for many ttl. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { EngineSource } from '../../../src/core/engine.js';
import { memory } from '../../../src/engines/memory/index.js';
import { EngineError, Holdfast, type OutageMessage } from '../../../src/index.js';
import { ScriptedEngine } from '../scripted-engine.js';
import { VirtualClock } from '../virtual-clock.js';

/** An engine that nobody can ask while it is away. */
class Outage {
  away = false;
  readonly #source: EngineSource;

  constructor(space: string) {
    this.#source = memory(space);
  }

  get source(): EngineSource {
    const unlessAway = <T>(ask: () => Promise<T>): Promise<T> =>
      this.away ? Promise.reject(new EngineError('away', { retryable: true })) : ask();
    const source = this.#source;
    const isAway = (): boolean => this.away;
    return {
      ...source,
      connect: async (setup) => {
        const engine = await source.connect(setup);
        return {
          async *inspect(query) {
            if (isAway()) throw new EngineError('away', { retryable: true });
            yield* engine.inspect!(query);
          },
          registers: engine.registers!,
          open: (options, listener) =>
            unlessAway(async () => {
              const session = await engine.open(options, listener);
              return {
                ttlMs: session.ttlMs,
                enter: (claim) => unlessAway(() => session.enter(claim)),
                leave: (claim) => unlessAway(() => session.leave(claim)),
                reweigh: (claim) => unlessAway(() => session.reweigh(claim)),
                beat: (roster) => unlessAway(() => session.beat(roster)),
                close: () => unlessAway(() => session.close()),
              };
            }),
          [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
        };
      },
    };
  }
}

test('a term that is lost before anybody has it costs no leadership for good', async () => {
  const engine = new ScriptedEngine();
  const clock = new VirtualClock();
  const source = { ...memory('undelivered'), connect: () => engine.connect() };
  const locks = new Holdfast(source, { clock, ttl: '3s' });
  engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
  const leading = locks.election('e').lead(() => 'led');
  await clock.advance(100);
  const { listener, entered } = engine.session;
  engine.heal();
  listener.granted(entered[0]!.id, 5n);
  listener.ended({ reason: 'session' });
  const led = expect(leading).resolves.toBe('led');
  await clock.advance(10_000);
  await led;
  await locks.close();
});

describe('an outage of many ttl', () => {
  test('costs a leader its term, and not its leadership for good', async () => {
    const clock = new VirtualClock();
    const outage = new Outage('outage-lead');
    const told: OutageMessage[] = [];
    const listen = (message: unknown): number => told.push(message as OutageMessage);
    subscribe('holdfast:outage', listen);
    onTestFinished(() => void unsubscribe('holdfast:outage', listen));
    await using locks = new Holdfast(outage.source, { clock, ttl: '3s' });
    let terms = 0;
    const leading = locks.election('e').lead(async ({ signal }) => {
      terms += 1;
      if (terms === 2) return 'led';
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      throw signal.reason;
    });
    await clock.advance(100);
    expect(terms).toBe(1);
    outage.away = true;
    await clock.advance(60_000);
    expect(terms).toBe(1);
    expect(told[0]).toMatchObject({ name: 'e', kind: 'lock', error: { code: 'HOLDFAST_ENGINE' } });
    outage.away = false;
    await clock.advance(10_000);
    expect(await leading).toBe('led');
  });

  test('is an error where there is a timeout, or where the engine will never be asked', async () => {
    const clock = new VirtualClock();
    const outage = new Outage('outage-timeout');
    await using locks = new Holdfast(outage.source, { clock, ttl: '3s' });
    outage.away = true;
    const leading = locks.election('e').lead({ timeout: '5s' }, () => 'never');
    const failed = expect(leading).rejects.toMatchObject({ code: 'HOLDFAST_ENGINE' });
    await clock.advance(10_000);
    await failed;
  });

  test('ends with the signal of the campaign, and with close()', async () => {
    const clock = new VirtualClock();
    const outage = new Outage('outage-ends');
    const locks = new Holdfast(outage.source, { clock, ttl: '3s' });
    outage.away = true;
    const giveUp = new AbortController();
    const given = expect(locks.election('e').lead({ signal: giveUp.signal }, () => 'never')).rejects.toBe('enough');
    const closed = expect(locks.election('e').lead(() => 'never')).rejects.toMatchObject({ code: 'HOLDFAST_CLOSED' });
    await clock.advance(30_000);
    giveUp.abort('enough');
    await clock.advance(10);
    await given;
    const closing = locks.close();
    await clock.advance(10_000);
    await Promise.all([closing, closed]);
  });

  test('is for those who observe a time in which nobody is known to lead', async () => {
    const clock = new VirtualClock();
    const outage = new Outage('outage-observe');
    await using locks = new Holdfast(outage.source, { clock, ttl: '3s' });
    await using leader = new Holdfast(memory('outage-observe'), { clock, ttl: '3s' });
    await leader.election('e').campaign({ value: 'here' });
    const stop = new AbortController();
    const seen: (string | undefined)[] = [];
    const observing = (async () => {
      for await (const found of locks.election('e').observe({ signal: stop.signal })) seen.push(found?.value);
    })();
    await clock.advance(500);
    outage.away = true;
    await clock.advance(60_000);
    outage.away = false;
    await clock.advance(2_000);
    stop.abort();
    await clock.advance(2_000);
    await observing;
    expect(seen).toEqual(['here', undefined, 'here']);
  });
});

describe('an error of the function’s own', () => {
  const shutdown = new AbortController();
  shutdown.abort();

  test.each([
    ['a mistake', new TypeError('not a function'), true],
    ['an abort of its own', shutdown.signal.reason as Error, true],
    ['what Node.js makes of an abort of its own', aborted(shutdown.signal.reason), true],
    ['an abort that says nothing, as old libraries do', aborted(undefined), false],
  ])('ends lead, also when the term is over: %s', async (what, thrown, isOwn) => {
    await using locks = new Holdfast(memory(`own-${what}`), { ttl: '10s' });
    await using others = new Holdfast(memory(`own-${what}`), { ttl: '10s' });
    let terms = 0;
    const leading = locks.election('e').lead(async (term) => {
      terms += 1;
      if (terms > 1) return 'led again';
      const [holder] = (await others.mutex('e').inspect()).claims;
      await others.evict('e', holder!.id);
      while (!term.signal.aborted) await new Promise((resolve) => setImmediate(resolve));
      throw thrown;
    });
    if (isOwn) await expect(leading).rejects.toBe(thrown);
    else expect(await leading).toBe('led again');
  });

  test('but not what Node.js makes of the loss', async () => {
    await using locks = new Holdfast(memory('own-not'), { ttl: '10s' });
    await using others = new Holdfast(memory('own-not'), { ttl: '10s' });
    let terms = 0;
    const leading = locks.election('e').lead(async ({ signal }) => {
      terms += 1;
      if (terms > 1) return 'led again';
      const [holder] = (await others.mutex('e').inspect()).claims;
      await others.evict('e', holder!.id);
      return sleep(60_000, 'never', { signal });
    });
    expect(await leading).toBe('led again');
  });
});

function aborted(cause: unknown): Error {
  return Object.assign(new Error('The operation was aborted', { cause }), { name: 'AbortError' });
}
