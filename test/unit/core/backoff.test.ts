import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { backoff } from '../../../src/core/backoff.js';
import { systemClock } from '../../../src/core/clock.js';

const withRandom = (random: number) => ({ ...systemClock, random: () => random });

describe('a backoff', () => {
  test('doubles from the first to the most', () => {
    const most = withRandom(1 - Number.EPSILON);
    const waits = [0, 1, 2, 3, 4, 5].map((attempt) => Math.round(backoff(most, attempt, 100, 1_000)));
    expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000]);
  });

  test('is never more than its ceiling and never less than half of it, for any attempt', () => {
    const attempt = fc.oneof(fc.nat({ max: 20 }), fc.nat());
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(
        attempt,
        random,
        fc.integer({ min: 1, max: 1_000 }),
        fc.integer({ min: 1, max: 10_000 }),
        (n, r, a, b) => {
          const [firstMs, mostMs] = a < b ? [a, b] : [b, a];
          const wait = backoff(withRandom(r), n, firstMs, mostMs);
          const ceiling = Math.min(mostMs, firstMs * 2 ** n);
          expect(wait).toBeLessThanOrEqual(ceiling);
          expect(wait).toBeGreaterThanOrEqual(ceiling / 2);
        },
      ),
      { numRuns: 300 },
    );
  });

  test('a fleet that lost its server together does not come back together', () => {
    expect(backoff(withRandom(0), 5, 100, 1_000)).toBe(500);
    expect(backoff(withRandom(0.5), 5, 100, 1_000)).toBe(750);
  });
});
