/** What a random run may do. */
import * as fc from 'fast-check';
import type { LineRef } from '../../../src/core/engine.js';
import { ALL } from '../../../src/core/line.js';

/** A mutex, a read/write lock, and a semaphore whose users do not agree on its size; the last two share a name. */
export const LINES: readonly {
  readonly ref: LineRef;
  readonly capacities: readonly number[];
  readonly weights: readonly number[];
}[] = [
  { ref: { kind: 'lock', name: 'order' }, capacities: [ALL], weights: [ALL] },
  { ref: { kind: 'lock', name: 'catalog' }, capacities: [ALL], weights: [1, ALL] },
  { ref: { kind: 'semaphore', name: 'catalog' }, capacities: [3, 3, 3, 4], weights: [1, 2, 3] },
];

export const LEAP_MS = 40_000;

/** Far from a multiple of a leap, so that the time which a run itself takes decides nothing. */
export const SESSIONS = [
  { ttlMs: 60_000, leaps: 1 },
  { ttlMs: 100_000, leaps: 2 },
] as const;

const ACTIONS = {
  enter: 14,
  enterAgain: 3,
  leave: 7,
  leaveForeign: 1,
  reweigh: 2,
  reweighForeign: 1,
  beat: 5,
  evict: 2,
  close: 1,
} as const;

type Action = keyof typeof ACTIONS;

/** Numbers choose among what there is then; each action uses some of them. */
export interface Operation {
  readonly do: Action;
  readonly session: number;
  readonly claim: number;
  readonly line: number;
  readonly weight: number;
  readonly capacity: number;
  /** Of an eviction: whether it names the right line. */
  readonly wait: boolean;
  readonly unsettled: readonly number[];
  /** How wrong the roster of a beat is. */
  readonly count: number;
  readonly held: number;
  readonly checksum: number;
}

export interface Batch {
  readonly engine: number;
  readonly operations: readonly Operation[];
}

export type Step =
  | ({ readonly do: 'batch' } & Batch)
  | { readonly do: 'open'; readonly engine: number; readonly kind: number }
  | { readonly do: 'leap' };

const number = fc.nat({ max: 1_000 });
const error = fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.constantFrom(-1, 1));

const operation: fc.Arbitrary<Operation> = fc.record({
  do: fc.oneof(
    ...Object.entries(ACTIONS).map(([action, weight]) => ({ weight, arbitrary: fc.constant(action as Action) })),
  ),
  session: number,
  claim: number,
  line: number,
  weight: number,
  capacity: number,
  wait: fc.oneof({ weight: 3, arbitrary: fc.constant(true) }, fc.constant(false)),
  unsettled: fc.array(number, { maxLength: 2 }),
  count: error,
  held: error,
  checksum: error,
});

const engine = fc.nat({ max: 1 });

function batch(maxLength: number): fc.Arbitrary<Step> {
  const operations = fc.array(operation, { minLength: 1, maxLength, size: 'max' });
  return fc.record({ do: fc.constant('batch' as const), engine, operations });
}

const open: fc.Arbitrary<Step> = fc.record({ do: fc.constant('open' as const), engine, kind: number });

const leap: fc.Arbitrary<Step> = fc.record({ do: fc.constant('leap' as const) });

export function steps(options: {
  readonly operationsAtOnce: number;
  readonly leaps: boolean;
}): fc.Arbitrary<readonly Step[]> {
  const step = fc.oneof(
    { weight: 20, arbitrary: batch(options.operationsAtOnce) },
    { weight: 1, arbitrary: open },
    ...(options.leaps ? [{ weight: 4, arbitrary: leap }] : []),
  );
  return fc.array(step, { maxLength: 40, size: 'max' });
}

export function pick<T>(from: readonly T[], number: number): T | undefined {
  return from[number % from.length];
}
