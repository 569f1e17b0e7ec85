import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ALL, holders, Line, type Spot } from '../../../src/core/line.js';
import { expectSame } from '../same.js';

/** What kinds of line there are, and what claims of each may weigh. */
const kinds = fc.oneof(
  fc.record({ capacity: fc.constant(ALL), weights: fc.constant([ALL]) }),
  fc.record({ capacity: fc.constant(ALL), weights: fc.constant([1, ALL]) }),
  fc
    .integer({ min: 1, max: 8 })
    .map((capacity) => ({ capacity, weights: Array.from({ length: capacity }, (_, at) => at + 1) })),
);

/** Numbers pick one of what there is at that moment, so that shrinking keeps a sequence meaningful. */
const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('enter' as const), pick: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('leave' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('lighten' as const), pick: fc.nat() }) },
);

interface Standing {
  readonly number: number;
  weight: number;
}

describe('the rule', () => {
  test('the longest prefix whose weights fit holds', () => {
    expect(holders([], 3)).toBe(0);
    expect(holders([1, 1, 1, 1], 3)).toBe(3);
    expect(holders([2, 2, 1], 3)).toBe(1);
    expect(holders([1, ALL, 1], ALL)).toBe(1);
    expect(holders([ALL, 1], ALL)).toBe(1);
    expect(holders([1, 1, 1], ALL)).toBe(3);
  });

  test('nobody passes one who waits, however light', () => {
    expect(holders([3, 4, 1], 5)).toBe(1);
  });
});

describe('a line', () => {
  test('holds after every step what the rule says, and names exactly those who hold because of it', () => {
    fc.assert(
      fc.property(kinds, fc.array(step, { maxLength: 60, size: 'max' }), ({ capacity, weights }, steps) => {
        const line = new Line<number>(capacity);
        const spots = new Map<number, Spot<number>>();
        let model: Standing[] = [];
        let entered = 0;
        const holding = (): number[] =>
          model
            .slice(
              0,
              holders(
                model.map(({ weight }) => weight),
                capacity,
              ),
            )
            .map(({ number }) => number);

        for (const { do: action, pick } of steps) {
          const before = holding();
          if (action === 'enter') {
            const weight = weights[pick % weights.length]!;
            const fitted = line.fits(weight);
            const spot = line.enter(entered, weight);
            spots.set(entered, spot);
            model.push({ number: entered, weight });
            expectSame(spot.held, holding().includes(entered));
            expectSame(fitted, spot.held);
            entered += 1;
          } else if (entered > 0) {
            // Picks among all that ever entered: those that left long ago too.
            const number = pick % entered;
            const spot = spots.get(number)!;
            const standing = model.find((one) => one.number === number);
            let admitted: readonly Spot<number>[];
            if (action === 'leave') {
              admitted = line.leave(spot);
              model = model.filter((one) => one !== standing);
              expectSame(line.leave(spot), []);
            } else {
              const weight = weights[pick % weights.length]!;
              admitted = line.lighten(spot, weight);
              if (standing) standing.weight = Math.min(standing.weight, weight);
            }
            expectSame(
              admitted.map(({ item }) => item),
              holding().filter((one) => !before.includes(one)),
            );
          }

          expectSame(
            [...line].map(({ item, weight }) => ({ number: item, weight })),
            model,
          );
          expectSame(
            [...line].filter(({ held }) => held).map(({ item }) => item),
            holding(),
          );
          expectSame(line.size, model.length);
          // A granted spot never becomes ungranted by what others do.
          const stillThere = before.filter((one) => model.some(({ number }) => number === one));
          expectSame(
            stillThere.filter((one) => !holding().includes(one)),
            [],
          );
        }
      }),
      { numRuns: 300 },
    );
  });

  test('a spot that left stays as it was', () => {
    const line = new Line<string>(ALL);
    const first = line.enter('first', ALL);
    const second = line.enter('second', ALL);
    line.leave(second);
    line.leave(first);
    expect(second.held).toBe(false);
    expect(line.lighten(second, 1)).toEqual([]);
    expect(line.enter('third', ALL).held).toBe(true);
  });
});
