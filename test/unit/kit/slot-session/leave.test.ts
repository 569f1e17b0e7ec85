import { describe, expect, test } from 'vitest';
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

describe('close', () => {
  test('drops what is held, and what is on its way when it arrives', async () => {
    await hold(claimOf('a'));
    const gate = deliverLate('take');
    const entering = session.enter(claimOf('b', { line: { kind: 'lock', name: 'other' } }));
    await settled();
    await session.close();
    expect(store.holders(NAME)).toEqual([]);
    gate.resolve();
    expect((await entering).state).not.toBe('held');
    await settled();
    expect(store.holders('other')).toEqual([]);
    expect(store.closed).toBe(1);
    expect(told).toEqual([]);
  });

  test('ends the asking and the watches', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    await settled();
    expect(store.watches).toBe(1);
    await session.close();
    expect(store.watches).toBe(0);
    const before = store.calls.length;
    await clock.advance(TTL_MS);
    expect(store.calls).toHaveLength(before);
  });

  test('is for ever: a beat that is answered after it revives nothing', async () => {
    const claim = claimOf('a');
    await hold(claim);
    const gate = answerLate('keep');
    const beat = session.beat(rosterOf([claim]));
    await session.close();
    gate.resolve();
    await beat;
    expect(await session.enter(claimOf('b'))).toEqual({ state: 'gone' });
  });
});
