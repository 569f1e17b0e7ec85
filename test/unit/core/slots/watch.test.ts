import { describe, expect, test } from 'vitest';
import type { Claim } from '../../../../src/core/engine.js';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { claimOf, clock, deliverLate, heal, NAME, newForEachTest, rosterOf, session, store, told } from './kit.js';

newForEachTest();

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
