import type { Traits } from 'holdfast';
import { expect, test } from 'vitest';
import { NEMESES } from './nemeses.js';
import { TARGETS, type TargetKind } from './targets.js';
import { namesFor, sparedOf } from './workload.js';

const EVERYTHING: Traits = {
  liveness: 'session',
  order: 'fifo',
  wake: 'push',
  token: 'clock',
  sharing: 'weighted',
  registers: true,
  forgets: true,
  listing: true,
  minTtlMs: 500,
};
const LEAST: Traits = { ...EVERYTHING, order: 'none', sharing: 'exclusive', registers: false, listing: false };
const KIND: TargetKind = TARGETS['redis']!;

const modesOf = (traits: Traits): Set<string> => new Set(namesFor(traits).map((name) => name.split('-')[0]!));

test('an engine is asked for the kinds of locks that it has', () => {
  expect(modesOf(EVERYTHING)).toEqual(new Set(['mutex', 'reentrant', 'write', 'semaphore', 'election']));
  expect(modesOf({ ...EVERYTHING, sharing: 'shared' })).not.toContain('semaphore');
  expect(modesOf({ ...EVERYTHING, registers: false })).not.toContain('election');
  expect(modesOf(LEAST)).toEqual(new Set(['mutex', 'reentrant']));
});

test('everything is judged that nobody spares', () => {
  expect(sparedOf(EVERYTHING, KIND, ['stall'])).toEqual(new Set());
  expect(sparedOf(EVERYTHING, KIND, ['stall', 'flush'])).toEqual(new Set(['belief', 'fifo']));
});

test('order is judged only where it is promised and can be seen', () => {
  expect(sparedOf({ ...EVERYTHING, order: 'none' }, KIND, [])).toEqual(new Set(['fifo']));
  expect(sparedOf(LEAST, KIND, [])).toEqual(new Set(['fifo', 'wakeups']));
});

test('an engine spares what its page does not promise', () => {
  const kind: TargetKind = { ...KIND, spares: ['truth'], sparesUnder: { restart: ['belief'] } };
  expect(sparedOf(EVERYTHING, kind, ['stall'])).toEqual(new Set(['truth']));
  expect(sparedOf(EVERYTHING, kind, ['restart'])).toEqual(new Set(['truth', 'belief']));
});

test('rows of the table name nemeses that there are', () => {
  for (const { short, sparesUnder } of Object.values(TARGETS))
    for (const name of [...(short?.nemeses ?? []), ...Object.keys(sparesUnder ?? {})])
      expect(NEMESES).toHaveProperty(name);
});
