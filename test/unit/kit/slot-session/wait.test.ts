import { describe, expect, test } from 'vitest';
import type { Claim } from '../../../../src/core/engine.js';
import { SlotSession } from '../../../../src/kit/slot-session.js';
import { never, Pending } from '../../scripted-engine.js';
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
  TTL_MS,
} from './kit.js';

newForEachTest();

describe('one who waits', () => {
  test('is granted in the order in which our claims came', async () => {
    const [first, second, third] = [claimOf('a'), claimOf('b'), claimOf('c')];
    await hold(first);
    expect(await session.enter(second)).toEqual({ state: 'waiting' });
    expect(await session.enter(third)).toEqual({ state: 'waiting' });
    expect(store.sent('take')).toEqual(['take a']);
    expect(await session.leave(first)).toBe(true);
    await settled();
    expect(told).toEqual(['granted b']);
    expect(await session.leave(second)).toBe(true);
    await settled();
    expect(told).toEqual(['granted b', 'granted c']);
    // The next asks when the slot is free: each of them had to ask once.
    expect(store.sent('take')).toEqual(['take a', 'take b', 'take c']);
  });

  test('asks only after the drop before it was answered', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    const gate = deliverLate('drop');
    const left = session.leave(first);
    await settled();
    expect(store.sent('take b')).toEqual([]);
    gate.resolve();
    expect(await left).toBe(true);
    await settled();
    expect(told).toEqual(['granted b']);
  });

  test('asks although the drop before it is never answered', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    store.network = (call, run) => {
      const answer = run();
      return call.startsWith('drop') ? never() : Promise.resolve(answer);
    };
    void session.leave(first);
    await clock.advance(TTL_MS);
    expect(told).toEqual(['granted b']);
  });

  test('who leaves first makes way, and nobody asks for it any more', async () => {
    const [first, second, third] = [claimOf('a'), claimOf('b'), claimOf('c')];
    await hold(first);
    await session.enter(second);
    await session.enter(third);
    expect(await session.leave(second)).toBe(true);
    expect(await session.leave(second)).toBe(false);
    await session.leave(first);
    await settled();
    expect(told).toEqual(['granted c']);
    expect(store.sent('take b')).toEqual([]);
  });

  test('who leaves has left at once, also while its drop is under way; the next one asks after that', async () => {
    store.occupy(NAME);
    const [first, second] = [claimOf('a'), claimOf('b')];
    await session.enter(first);
    await settled();
    const gate = deliverLate('drop');
    expect(await session.leave(first)).toBe(true);
    store.free(NAME);
    const entered = session.enter(second);
    await settled();
    expect(store.sent('take b')).toHaveLength(0);
    gate.resolve();
    expect(await entered).toMatchObject({ state: 'held' });
  });

  test('asks at once when told, and again when told while it asked', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    await settled();
    const gate = answerLate('take');
    store.hint();
    const asked = store.sent('take').length;
    store.free(NAME);
    store.hint();
    expect(store.sent('take')).toHaveLength(asked);
    gate.resolve();
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.sent('take')).toHaveLength(asked + 1);
    expect(clock.now()).toBe(0);
  });

  test('asks again as soon as it listens: it may have been freed before', async () => {
    store.occupy(NAME);
    const gate = deliverLate('watch');
    await session.enter(claimOf('a'));
    await settled();
    store.free(NAME);
    gate.resolve();
    await settled();
    expect(told).toEqual(['granted a']);
    expect(clock.now()).toBe(0);
  });

  test('is served although no hint comes, and asks no faster than the pace', async () => {
    store.occupy(NAME);
    store.network = (call, run) =>
      call.startsWith('watch') ? Promise.reject(new Error('no rights')) : Promise.resolve(run());
    await session.enter(claimOf('a'));
    await clock.advance(60_000);
    // With the jitter of this clock a pause is 3/4 of 1,000 ms, but for the first few.
    expect(store.sent('take').length).toBeLessThan(60_000 / 750 + 10);
    store.free(NAME);
    await clock.advance(store.pace.mostMs);
    expect(told).toEqual(['granted a']);
  });

  test('asks when the slot runs out, if that is sooner', async () => {
    const other = new SlotSession({
      options: { id: 'other', realm: '', ttlMs: TTL_MS, label: 'other' },
      listener: { granted: () => {}, lost: () => {}, ended: () => {}, hinted: () => {} },
      clock,
      store: () => store,
    });
    await other.enter(claimOf('z'));
    const claim = claimOf('a');
    await session.enter(claim);
    await clock.advance(TTL_MS - 1_000);
    await session.beat(rosterOf([], [claim]));
    expect(told).toEqual([]);
    await clock.advance(1_000 + 1 + store.pace.firstMs);
    expect(told).toEqual(['granted a']);
  });

  test('goes on asking although an answer never comes', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    await settled();
    store.network = () => never();
    store.hint();
    await settled();
    heal();
    store.free(NAME);
    await clock.advance(BEAT_MS + store.pace.mostMs);
    expect(told).toEqual(['granted a']);
  });

  test('goes on asking after an error', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    store.network = () => Promise.reject(new Error('no connection'));
    await clock.advance(2_000);
    heal();
    store.free(NAME);
    await clock.advance(store.pace.mostMs);
    expect(told).toEqual(['granted a']);
  });

  test('whose answer comes late is granted once', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    await session.enter(claim);
    await settled();
    store.free(NAME);
    const gate = answerLate('take');
    store.hint();
    await clock.advance(BEAT_MS + store.pace.mostMs);
    expect(store.sent('take').length).toBeGreaterThan(3);
    gate.resolve();
    await settled();
    const asked = store.sent('take').length;
    await clock.advance(TTL_MS - 1 - clock.now());
    expect(told).toEqual(['granted a']);
    expect(store.sent('take')).toHaveLength(asked);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
  });
});

describe('a watch', () => {
  test('outlives its waiter a little, for the next one, and is opened anew after that', async () => {
    await waitAndBeServed('a');
    await session.beat(rosterOf([]));
    expect(store.watches).toBe(1);
    await waitAndBeServed('b');
    expect(store.sent('watch')).toHaveLength(1);
    for (let beat = 0; beat < 2; beat += 1) await session.beat(rosterOf([]));
    expect(store.watches).toBe(1);
    await session.beat(rosterOf([]));
    await settled();
    expect(store.watches).toBe(0);
    await waitAndBeServed('c');
    expect(store.sent('watch')).toHaveLength(2);
  });

  test('stays while somebody waits', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    await session.enter(claim);
    for (let beat = 0; beat < 10; beat += 1) await session.beat(rosterOf([], [claim]));
    expect(store.watches).toBe(1);
  });

  describe('that fails after it was given up', () => {
    test('disturbs no other one of the line', async () => {
      const [first, second] = [claimOf('a'), claimOf('b')];
      const gate = await giveUpWatch(first);
      await session.enter(second);
      await session.leave(first);
      await failsUnnoticed(gate);
    });

    test('disturbs no line of that name that was begun anew', async () => {
      const first = claimOf('a');
      const gate = await giveUpWatch(first);
      await session.leave(first);
      // The old line is forgotten.
      await settled();
      store.occupy(NAME);
      await session.enter(claimOf('b'));
      await failsUnnoticed(gate);
    });
  });
});

async function waitAndBeServed(id: string): Promise<void> {
  store.occupy(NAME);
  const claim = claimOf(id);
  expect(await session.enter(claim)).toEqual({ state: 'waiting' });
  await settled();
  store.free(NAME);
  store.hint();
  await settled();
  expect(told.at(-1)).toBe(`granted ${id}`);
  expect(await session.leave(claim)).toBe(true);
}

/** One is waiting for its watch, and is served by asking; the watch is given up before it was opened. */
async function giveUpWatch(first: Claim): Promise<Pending<void>> {
  const gate = deliverLate('watch');
  store.occupy(NAME);
  await session.enter(first);
  store.free(NAME);
  await clock.advance(store.pace.mostMs);
  expect(told).toEqual([`granted ${first.id}`]);
  for (let beat = 0; beat < 3; beat += 1) await session.beat(rosterOf([first]));
  heal();
  return gate;
}

async function failsUnnoticed(gate: Pending<void>): Promise<void> {
  await settled();
  expect(store.watches).toBe(1);
  gate.reject(new Error('no rights'));
  await settled();
  await session.close();
  expect(store.watches).toBe(0);
}
