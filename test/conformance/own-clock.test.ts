/** In a world of its own: it watches the clocks of the whole process, and a unit test may leave one ticking for a moment. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import type { EngineSource } from '../../src/core/engine.js';
import { memory } from '../../src/engines/memory/index.js';
import { conformance } from '../../src/conformance/index.js';
import { selfWindingClock } from '../unit/self-winding-clock.js';

/** The cases that the suite would run on such an engine, by their titles. */
function casesOf(source: EngineSource): ReadonlyMap<string, () => Promise<void>> {
  const cases = new Map<string, () => Promise<void>>();
  const register = (name: string, run: () => Promise<void>): void => void cases.set(name, run);
  conformance({ test: register, engine: 'mine', source: () => source, clock: selfWindingClock() });
  return cases;
}

/** Where our own code asks for real time: the runner, which lives in this process too, may. */
function askersOfRealTime(): readonly string[] {
  const asked: string[] = [];
  const heard = (): void => {
    const caller = new Error().stack?.split('\n').find((line) => line.includes('/src/'));
    if (caller) asked.push(caller);
  };
  for (const each of ['now', 'wall', 'timer'] as const) {
    const real = systemClock[each] as (...args: unknown[]) => never;
    vi.spyOn(systemClock, each).mockImplementation((...args: unknown[]) => {
      heard();
      return real(...args);
    });
  }
  return asked;
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe('the conformance suite with a clock of the caller', () => {
  test('takes time from nowhere else', async () => {
    const cases = [...casesOf(memory('one clock'))].filter(([title]) =>
      /: (expiry|loss|order|once|abort): /.test(title),
    );
    const asked = askersOfRealTime();
    for (const [, run] of cases) await run();
    expect(cases.length).toBeGreaterThan(30);
    expect(asked).toEqual([]);
  });

  test('ends a case that hangs when its limit has passed on that clock, and says what was awaited', async () => {
    const source = memory('blind');
    const blind: EngineSource = {
      traits: source.traits,
      connect: async (setup) => Object.assign(await source.connect(setup), { inspect: async function* () {} }),
    };
    const run = casesOf(blind).get('mine: exclusion: a waiter is granted when the holder releases, and not before');
    await expect(run?.()).rejects.toThrow('Not within 50000 ms: 1 claims wait for lock-1.');
  });
});
