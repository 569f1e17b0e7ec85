/** Who waits looks when the next session should have died, and nobody looks without a reason. */
import { beforeEach, expect, test } from 'vitest';
import { DeathWatch } from '../../../src/kit/death-watch.js';
import { VirtualClock } from '../virtual-clock.js';

/** What comes to every time: one millisecond, and half of the stagger with the jitter of this clock. */
const LATE_MS = 1 + 25;

let clock: VirtualClock;
let waits: boolean;
let looks: number[];
let watch: DeathWatch;

beforeEach(() => {
  clock = new VirtualClock();
  waits = true;
  looks = [];
  watch = new DeathWatch({ clock, waits: () => waits, look: () => looks.push(clock.now()) });
});

test('a look is made when the session should have died, a little later, and once', async () => {
  watch.expect(1_000);
  expect(clock.keepsProcessAlive).toBe(false);
  await clock.advance(10_000);
  expect(looks).toEqual([1_000 + LATE_MS]);
});

test('of several the earliest counts, in whatever order they are heard of', async () => {
  watch.expect(2_000);
  watch.expect(1_000);
  watch.expect(3_000);
  await clock.advance(10_000);
  expect(looks).toEqual([1_000 + LATE_MS]);
  expect(clock.timersSet).toBe(2);
});

test('after a look the next death is watched for', async () => {
  watch.expect(0);
  await clock.advance(LATE_MS);
  watch.expect(500);
  await clock.advance(10_000);
  expect(looks).toEqual([LATE_MS, LATE_MS + 500 + LATE_MS]);
});

test('where nobody will die there is no look', () => {
  watch.expect(-1);
  expect(clock.timersPending).toBe(0);
});

test('while nobody waits there is no look, however late it is noticed', async () => {
  waits = false;
  watch.expect(1_000);
  expect(clock.timersPending).toBe(0);
  waits = true;
  watch.expect(1_000);
  waits = false;
  await clock.advance(10_000);
  expect(looks).toEqual([]);
  waits = true;
  watch.expect(1_000);
  await clock.advance(10_000);
  expect(looks).toHaveLength(1);
});

test('after close nothing is looked for any more', async () => {
  watch.expect(1_000);
  watch.close();
  watch.expect(1_000);
  await clock.advance(10_000);
  expect(looks).toEqual([]);
  expect(clock.timersPending).toBe(0);
});
