import { expect, test } from 'vitest';
import type { EngineSource } from '../../../src/core/engine.js';
import { memory } from '../../../src/engines/memory/index.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import { VirtualClock } from '../virtual-clock.js';

/** The same engine, whose answers to an enter are on their way for so long. */
function slow(source: EngineSource, clock: VirtualClock, ms: number): EngineSource {
  return {
    ...source,
    connect: async (setup) => {
      const engine = await source.connect(setup);
      return {
        inspect: (query) => engine.inspect!(query),
        open: async (options, listener) => {
          const session = await engine.open(options, listener);
          return {
            ttlMs: session.ttlMs,
            enter: async (claim) => {
              const place = await session.enter(claim);
              await new Promise<void>((resolve) => clock.timer(ms, resolve));
              return place;
            },
            leave: (claim) => session.leave(claim),
            reweigh: (claim) => session.reweigh(claim),
            beat: (roster) => session.beat(roster),
            close: () => session.close(),
          };
        },
        [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
      };
    },
  };
}

test.each(['tryAcquire', 'acquire'] as const)(
  'one try of several locks takes no longer than of one: %s',
  async (how) => {
    const clock = new VirtualClock();
    await using others = new Holdfast(memory(`all-${how}`), { clock });
    await using locks = new Holdfast(slow(memory(`all-${how}`), clock, 1_500), { clock, ttl: '6s' });
    await locks.ready();
    const all = locks.all(['a', 'b', 'c', 'd'].map((name) => locks.mutex(name)));
    const startedAt = clock.now();
    let settledAt: number | undefined;
    const tried = (how === 'acquire' ? all.acquire({ timeout: 0 }) : all.tryAcquire())
      .catch((error: unknown) => error)
      .finally(() => (settledAt = clock.now()));
    await clock.advance(20_000);
    expect(await tried).toBeInstanceOf(EngineError);
    expect(settledAt! - startedAt).toBeLessThanOrEqual(2_000);
    // What was granted too late is left.
    expect((await others.all(['a', 'b', 'c', 'd'].map((name) => others.mutex(name))).tryAcquire())?.held).toBe(true);
  },
);
