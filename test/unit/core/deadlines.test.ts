import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Deadlines } from '../../../src/core/deadlines.js';
import { Pending } from '../scripted-engine.js';
import { VirtualClock } from '../virtual-clock.js';

const LIMIT_MS = 1_000;
/** Calls share a ticking timer, so what is left of a tick is taken off. */
const LEAST_MS = LIMIT_MS * 0.8;

describe('a deadline', () => {
  test('every call has the same, counted from its own start: the limit, or a little less, but never more', async () => {
    const clock = new VirtualClock();
    const deadlines = new Deadlines(clock, LIMIT_MS);
    const waitedMs: number[] = [];
    for (const pauseMs of [0, 300, 310, 20, 900, 5_000]) {
      await clock.advance(pauseMs);
      const startedAt = clock.now();
      deadlines.start(() => waitedMs.push(clock.now() - startedAt));
    }
    await clock.advance(10_000);
    expect(waitedMs).toHaveLength(6);
    expect(Math.min(...waitedMs)).toBeGreaterThanOrEqual(LEAST_MS);
    expect(Math.max(...waitedMs)).toBeLessThanOrEqual(LIMIT_MS);
  });

  test('an answer in time is told so, and silence is not heard of then', async () => {
    const clock = new VirtualClock();
    let silences = 0;
    const call = new Deadlines(clock, LIMIT_MS).start(() => (silences += 1));
    await clock.advance(LEAST_MS - 1);
    expect(call.answered()).toBe(true);
    await clock.advance(LIMIT_MS * 3);
    expect(silences).toBe(0);
    expect(call.answered(), 'a second answer does not count').toBe(false);
  });

  test('a late answer is told so', async () => {
    const clock = new VirtualClock();
    let silences = 0;
    const call = new Deadlines(clock, LIMIT_MS).start(() => (silences += 1));
    await clock.advance(LIMIT_MS);
    expect(silences).toBe(1);
    expect(call.answered()).toBe(false);
  });

  test('answered or silent, never both and never neither, in whatever order calls are answered', async () => {
    const call = fc.record({ pauseMs: fc.nat({ max: 400 }), answerMs: fc.nat({ max: 2_000 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(call, { maxLength: 150, size: 'max' }), async (calls) => {
        const clock = new VirtualClock();
        const deadlines = new Deadlines(clock, LIMIT_MS);
        const outcomes: string[] = [];
        const expected: string[] = [];
        for (const [at, { pauseMs, answerMs }] of calls.entries()) {
          await clock.advance(pauseMs);
          const call = deadlines.start(() => {
            expect(outcomes[at]).toBeUndefined();
            outcomes[at] = 'silent';
          });
          clock.timer(answerMs, () => {
            if (call.answered()) outcomes[at] = 'answered';
          });
          expected[at] = answerMs < LEAST_MS ? 'answered' : answerMs > LIMIT_MS ? 'silent' : 'either';
        }
        await clock.advance(5_000);
        expect(outcomes).not.toContain(undefined);
        expect(outcomes.map((outcome, at) => (expected[at] === 'either' ? 'either' : outcome))).toEqual(expected);
        expect(clock.timersPending, 'no timer is left when no call is').toBe(0);
      }),
      { numRuns: 15 },
    );
  });

  test('thousands of calls use one timer, and it does not keep the process alive', async () => {
    const clock = new VirtualClock();
    const deadlines = new Deadlines(clock, LIMIT_MS);
    const calls = Array.from({ length: 5_000 }, () => deadlines.start(() => undefined));
    expect(clock.timersSet).toBe(1);
    expect(clock.keepsProcessAlive).toBe(false);
    await clock.advance(LIMIT_MS / 2);
    expect(clock.timersPending).toBe(1);
    expect(clock.keepsProcessAlive).toBe(false);
    for (const call of calls) expect(call.answered()).toBe(true);
    const before = clock.timersSet;
    for (let count = 0; count < 5_000; count += 1) deadlines.start(() => undefined).answered();
    expect(clock.timersSet).toBe(before);
    await clock.advance(LIMIT_MS);
    expect(clock.timersSet, 'nothing is pending, so no timer is set again').toBe(before);
    expect(clock.timersPending).toBe(0);
  });

  test('time in which our own event loop stood still is not held against the engine', async () => {
    const clock = new VirtualClock();
    const deadlines = new Deadlines(clock, LIMIT_MS);
    let silences = 0;
    const call = deadlines.start(() => (silences += 1));
    clock.stall(LIMIT_MS * 5);
    await clock.advance(0);
    expect(silences).toBe(0);
    expect(call.answered()).toBe(true);
  });

  test('what silence starts has a deadline of its own', async () => {
    const clock = new VirtualClock();
    const deadlines = new Deadlines(clock, LIMIT_MS);
    const silentAt: number[] = [];
    deadlines.start(() => {
      silentAt.push(clock.now());
      deadlines.start(() => silentAt.push(clock.now()));
    });
    await clock.advance(LIMIT_MS * 2);
    expect(silentAt).toHaveLength(2);
    expect(silentAt[1]! - silentAt[0]!).toBeGreaterThanOrEqual(LEAST_MS);
  });
});

describe('a race against the deadline', () => {
  test('gives the answer, or the error, that came in time', async () => {
    const deadlines = new Deadlines(new VirtualClock(), LIMIT_MS);
    await expect(deadlines.race(Promise.resolve(5), () => new Error('late'))).resolves.toBe(5);
    const failing = Promise.reject(new Error('no'));
    await expect(deadlines.race(failing, () => new Error('late'))).rejects.toThrow('no');
  });

  test('rejects after silence, and drops what comes later', async () => {
    const clock = new VirtualClock();
    const deadlines = new Deadlines(clock, LIMIT_MS);
    const [answer, failure] = [new Pending<number>(), new Pending<number>()];
    const races = [answer, failure].map(({ promise }) => deadlines.race(promise, () => new Error('late')));
    const outcomes = Promise.allSettled(races);
    await clock.advance(LIMIT_MS);
    answer.resolve(5);
    failure.reject(new Error('much too late'));
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: { message: 'late' } });
  });
});
