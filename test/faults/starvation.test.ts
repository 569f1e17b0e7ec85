import { expect, test } from 'vitest';
import { type HistoryEvent, nowMicros } from './history.js';
import { Starvation } from './starvation.js';

const TTL_MS = 1_000;
const EVERY_MS = 25;

/** Looks so many milliseconds after one another. */
function looksAfter(...gapsMs: readonly number[]): readonly HistoryEvent[] {
  const events: HistoryEvent[] = [];
  let now = nowMicros();
  const starvation = new Starvation({
    target: 'w1.1',
    ttlMs: TTL_MS,
    everyMs: EVERY_MS,
    id: () => 'f1',
    write: (event) => events.push(event),
  });
  starvation.look(now);
  for (const gapMs of gapsMs) starvation.look((now += gapMs * 1_000));
  return events;
}

test('who is on time, or late now and then, is not starved', () => {
  expect(looksAfter(...Array<number>(100).fill(30))).toEqual([]);
  expect(looksAfter(200, 25, 25)).toEqual([]);
  expect(looksAfter(200, TTL_MS / 2, 25)).not.toEqual([]);
});

test('one long delay is told with its times', () => {
  const [begin, end] = looksAfter(25, 400);
  expect(begin).toMatchObject({ nemesis: 'starved', target: 'w1.1', what: 'begin' });
  expect(end!.at - begin!.at).toBe(400_000);
});

test('many short delays within a ttl count as one long', () => {
  expect(looksAfter(100, 100, 100, 100)).toHaveLength(2);
  expect(looksAfter(...Array.from({ length: 8 }, () => [100, ...Array<number>(30).fill(25)]).flat())).toEqual([]);
});
