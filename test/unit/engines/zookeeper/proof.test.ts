/** Since when the servers are known to have kept a session alive: what each beat proves. */
import { expect, test } from 'vitest';
import { Proof } from '../../../../src/engines/zookeeper/proof.js';

const TIMEOUT_MS = 4_000;
/** Two ticks are the shortest session there is, and a follower reports every half tick. */
const GAP_MS = 1_000;

const at = (now: number, wall = now): { now: number; wall: number } => ({ now, wall });

/** Asked at each of these times, and answered 10 ms later. */
function beaten(...times: readonly number[]): Proof {
  const proof = new Proof();
  for (const time of times) proof.heard(at(time), time + 10);
  return proof;
}

test('a beat proves that the one before it was reported to the leader, and not more', () => {
  const proof = beaten(0);
  expect(proof.since(1_300, TIMEOUT_MS)).toEqual(at(0));
  proof.heard(at(1_300), 1_310);
  expect(proof.since(2_600, TIMEOUT_MS)).toEqual(at(1_300));
  proof.heard(at(2_600), 2_610);
  expect(proof.since(3_900, TIMEOUT_MS)).toEqual(at(2_600));
});

test('one that follows too soon after another proves no more than that one did', () => {
  const proof = beaten(0, 1_300);
  expect(proof.since(1_400, TIMEOUT_MS)).toEqual(at(0));
  proof.heard(at(1_400), 1_410);
  // Counted from the answer: what was asked long ago may have arrived only now.
  expect(proof.since(1_310 + GAP_MS - 1, TIMEOUT_MS)).toEqual(at(0));
  expect(proof.since(1_310 + GAP_MS, TIMEOUT_MS)).toEqual(at(1_300));
  expect(proof.since(1_410 + GAP_MS, TIMEOUT_MS)).toEqual(at(1_400));
});

test('what is proven never goes back, however many answers come', () => {
  const proof = beaten(0);
  let proven = 0;
  for (let time = 1; time < 10_000; time += 1) {
    const since = proof.since(time, TIMEOUT_MS).now;
    expect(since).toBeGreaterThanOrEqual(proven);
    expect(since).toBeLessThanOrEqual(Math.max(0, time - GAP_MS));
    proven = since;
    proof.heard(at(time), time);
  }
  expect(proven).toBeGreaterThan(8_000);
});

test('after a suspension a beat waits until it can prove something that is newer', () => {
  const proof = beaten(0, 1_300);
  expect(proof.pauseMs(at(2_600), TIMEOUT_MS)).toBe(0);
  const wallAhead = 60_000;
  // The first is sent at once; it is what the next can prove.
  expect(proof.pauseMs(at(2_600, 2_600 + wallAhead), TIMEOUT_MS)).toBe(0);
  proof.heard(at(2_600, 2_600 + wallAhead), 2_610);
  expect(proof.pauseMs(at(2_620, 2_620 + wallAhead), TIMEOUT_MS)).toBe(GAP_MS - 10);
  expect(proof.pauseMs(at(3_610, 3_610 + wallAhead), TIMEOUT_MS)).toBe(0);
  expect(proof.since(3_610, TIMEOUT_MS)).toEqual(at(2_600, 2_600 + wallAhead));
});
