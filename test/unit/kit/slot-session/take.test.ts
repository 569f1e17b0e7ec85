import { describe, expect, test } from 'vitest';
import type { Claim } from '../../../../src/core/engine.js';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import {
  answerLate,
  BEAT_MS,
  claimOf,
  clock,
  deliverLate,
  heal,
  hold,
  NAME,
  newForEachTest,
  rosterOf,
  session,
  store,
  told,
  trying,
  TTL_MS,
} from './kit.js';

newForEachTest();

describe('a take', () => {
  test('of a free slot is one call, and another enter of the claim gives the same answer', async () => {
    const claim = claimOf('a');
    const first = await session.enter(claim);
    expect(first).toEqual({ state: 'held', token: 1n });
    expect(await session.enter(claim)).toEqual(first);
    expect(store.calls).toEqual(['take a']);
  });

  test('two enters of one claim that are under way at once give one grant', async () => {
    const gate = answerLate('take');
    const claim = claimOf('a');
    const places = [session.enter(claim), session.enter(claim)];
    await settled();
    gate.resolve();
    expect(await Promise.all(places)).toEqual([
      { state: 'held', token: 1n },
      { state: 'held', token: 1n },
    ]);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
    expect(told).toEqual([]);
  });

  test('one enter found it busy and the other got it: the claim holds and asks no more', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    const gate = new Pending<void>();
    let takes = 0;
    store.network = async (call, run) => {
      if (call.startsWith('take')) takes += 1;
      if (call.startsWith('take') && takes === 2) await gate.promise;
      return run();
    };
    const [first, second] = [session.enter(claim), session.enter(claim)];
    expect(await first).toEqual({ state: 'waiting' });
    await settled();
    store.free(NAME);
    gate.resolve();
    expect(await second).toMatchObject({ state: 'held' });
    const before = store.sent('take').length;
    await clock.advance(BEAT_MS);
    expect(store.sent('take')).toHaveLength(before);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
  });

  test('that a beat has overtaken is renewed before it is granted', async () => {
    const gate = answerLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    await clock.advance(1_000);
    gate.resolve();
    expect(await place).toMatchObject({ state: 'held' });
    expect(store.calls).toEqual(['take a', 'keep a']);
    // The core believes in it for one ttl from the beat on.
    expect(store.until(NAME, 'a')).toBeGreaterThanOrEqual(BEAT_MS + TTL_MS);
  });

  test('is renewed again when a beat overtakes the renewal, too', async () => {
    const takeGate = answerLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    const keepGate = answerLate('keep');
    takeGate.resolve();
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    keepGate.resolve();
    expect(await place).toMatchObject({ state: 'held' });
    expect(store.calls).toEqual(['take a', 'keep a', 'keep a']);
    expect(store.until(NAME, 'a')).toBeGreaterThanOrEqual(2 * BEAT_MS + TTL_MS);
  });

  test('that a beat has overtaken and whose slot is gone by then is no grant', async () => {
    const gate = answerLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    store.free(NAME, 'a');
    store.occupy(NAME);
    gate.resolve();
    expect(await place).toEqual({ state: 'waiting' });
    expect(store.holders(NAME)).toEqual(['somebody else']);
  });

  test('of one who waited is renewed as well', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    expect(await session.enter(claim)).toEqual({ state: 'waiting' });
    await settled();
    store.free(NAME);
    const gate = answerLate('take');
    store.hint();
    await session.beat(rosterOf([], [claim]));
    gate.resolve();
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.calls.slice(-2)).toEqual(['take a', 'keep a']);
  });

  test('that gets there after its leave is dropped', async () => {
    const gate = deliverLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    expect(await session.leave(claim)).toBe(true);
    gate.resolve();
    expect((await place).state).not.toBe('held');
    await settled();
    expect(store.holders(NAME)).toEqual([]);
    expect(told).toEqual([]);
  });

  test('of one who waited and has left is dropped, and granted to nobody', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    await session.enter(claim);
    await settled();
    store.free(NAME);
    const gate = deliverLate('take');
    store.hint();
    expect(await session.leave(claim)).toBe(true);
    gate.resolve();
    await settled();
    expect(store.holders(NAME)).toEqual([]);
    expect(told).toEqual([]);
  });

  test('whose answer is an error after its leave is dropped', async () => {
    const gate = new Pending<void>();
    store.network = async (call, run) => {
      if (!call.startsWith('take')) return run();
      await gate.promise;
      run();
      throw new Error('lost');
    };
    const claim = claimOf('a');
    const place = session.enter(claim).catch((error: unknown) => (error as Error).message);
    await session.leave(claim);
    gate.resolve();
    expect(await place).toBe('lost');
    await settled();
    expect(store.holders(NAME)).toEqual([]);
  });

  test('whose answer is an error rejects, and is answered when it is asked again', async () => {
    store.network = async (_, run) => {
      run();
      throw new Error('lost');
    };
    const claim = claimOf('a');
    await expect(session.enter(claim)).rejects.toThrow('lost');
    heal();
    expect(await session.enter(claim)).toEqual({ state: 'held', token: 1n });
    expect(await session.leave(claim)).toBe(true);
  });
});

describe('one who only tries', () => {
  test('is refused here while one of us stands in line, without a call', async () => {
    await hold(claimOf('a'));
    expect(await session.enter(trying('b'))).toEqual({ state: 'refused' });
    expect(store.calls).toEqual(['take a']);
  });

  test('is refused there with one call, and nothing is left of it', async () => {
    store.occupy(NAME);
    const claim = trying('a');
    expect(await session.enter(claim)).toEqual({ state: 'refused' });
    expect(await session.leave(claim)).toBe(false);
    expect(store.calls).toEqual(['take a']);
    expect(await session.beat(rosterOf([]))).toEqual({ alive: true });
    store.free(NAME);
    await hold(claimOf('b'));
  });
});

describe('shared slots', () => {
  test('are asked for by all that fit, and by a writer when they have left', async () => {
    const [one, two] = [reading('a'), reading('b')];
    await hold(one);
    await hold(two);
    const writer = claimOf('w');
    expect(await session.enter(writer)).toEqual({ state: 'waiting' });
    // Not past the writer.
    expect(await session.enter(claimOf('c', { weight: 1, wait: false }))).toEqual({ state: 'refused' });
    await session.leave(one);
    await settled();
    expect(told).toEqual([]);
    await session.leave(two);
    await settled();
    expect(told).toEqual(['granted w']);
  });

  test('one who becomes lighter lets those in who fit now', async () => {
    const writer = claimOf('w');
    await hold(writer);
    await session.enter(reading('a'));
    await session.reweigh({ ...writer, weight: 1 });
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.holders(NAME)).toEqual(['w', 'a']);
  });
});

function reading(id: string): Claim {
  return claimOf(id, { weight: 1 });
}
