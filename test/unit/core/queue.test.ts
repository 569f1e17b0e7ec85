import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Link, Queue } from '../../../src/core/queue.js';
import { expectSame } from '../same.js';

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('push' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('shift' as const), pick: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('remove' as const), pick: fc.nat() }) },
);

describe('a queue', () => {
  test('does what an array would do', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
        const queue = new Queue<number>();
        const links: Link<number>[] = [];
        const model: number[] = [];
        for (const { do: action, pick } of steps) {
          if (action === 'push') {
            model.push(links.length);
            links.push(queue.push(links.length));
          } else if (action === 'shift') {
            expectSame(queue.shift(), model.shift());
          } else if (links.length > 0) {
            // Also those that are gone already.
            const item = pick % links.length;
            const at = model.indexOf(item);
            expectSame(queue.remove(links[item]!), at !== -1);
            if (at !== -1) model.splice(at, 1);
          }
          expectSame([...queue], model);
          expectSame(queue.size, model.length);
          expectSame(queue.first, model[0]);
        }
      }),
      { numRuns: 300 },
    );
  });

  test('items may be removed while it is walked: each is seen once, and what is gone is not seen', () => {
    const removals = fc.array(fc.uniqueArray(fc.nat({ max: 7 }), { maxLength: 4, size: 'max' }), {
      minLength: 8,
      maxLength: 8,
    });
    fc.assert(
      fc.property(removals, (removedAt) => {
        const queue = new Queue<number>();
        const links = Array.from({ length: 8 }, (_, item) => queue.push(item));
        const gone = new Set<number>();
        const seen: number[] = [];
        for (const item of queue) {
          expect(gone).not.toContain(item);
          seen.push(item);
          for (const other of removedAt[item]!) {
            queue.remove(links[other]!);
            gone.add(other);
          }
        }
        expect(seen).toEqual([...seen].sort((a, b) => a - b));
        expect(seen).toEqual(expect.arrayContaining([...queue]));
      }),
      { numRuns: 200 },
    );
  });
});
