import { describe, expect, test } from 'vitest';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import {
  BEAT_MS,
  claimOf,
  clock,
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

describe('a drop that fails', () => {
  test('is tried again with the next beats, until one is answered', async () => {
    const claim = claimOf('a');
    await hold(claim);
    store.network = () => Promise.reject(new Error('no connection'));
    await expect(session.leave(claim)).rejects.toThrow('no connection');
    await session.beat(rosterOf([]));
    heal();
    expect(store.holders(NAME)).toEqual(['a']);
    await session.beat(rosterOf([]));
    await settled();
    expect(store.holders(NAME)).toEqual([]);
    await session.beat(rosterOf([]));
    expect(store.sent('drop')).toHaveLength(3);
  });

  test('is tried again, too, if it is of a take that came after its leave', async () => {
    const claim = claimOf('a');
    const gate = new Pending<void>();
    store.network = async (call, run) => {
      if (!call.startsWith('take')) return run();
      await gate.promise;
      store.network = () => Promise.reject(new Error('no connection'));
      return run();
    };
    const place = session.enter(claim);
    expect(await session.leave(claim)).toBe(true);
    gate.resolve();
    expect((await place).state).not.toBe('held');
    await settled();
    expect(store.holders(NAME)).toEqual(['a']);
    heal();
    await session.beat(rosterOf([]));
    await settled();
    expect(store.holders(NAME)).toEqual([]);
  });

  test('is given up when the slot has run out', async () => {
    const claim = claimOf('a');
    await hold(claim);
    store.network = () => Promise.reject(new Error('no connection'));
    await expect(session.leave(claim)).rejects.toThrow('no connection');
    for (let beat = 0; beat < 4; beat += 1) {
      await clock.advance(BEAT_MS);
      await session.beat(rosterOf([]));
    }
    expect(store.sent('drop')).toHaveLength(3);
  });

  test('does not keep the next of us from asking', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    store.network = (call, run) =>
      call.startsWith('drop') ? Promise.reject(new Error('no connection')) : Promise.resolve(run());
    await expect(session.leave(first)).rejects.toThrow('no connection');
    await clock.advance(TTL_MS - 1);
    await session.beat(rosterOf([], [second]));
    await clock.advance(1 + 1 + store.pace.firstMs);
    expect(told).toEqual(['granted b']);
  });
});
