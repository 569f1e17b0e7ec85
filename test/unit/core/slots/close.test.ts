import { describe, expect, test } from 'vitest';
import { settled } from '../../virtual-clock.js';
import {
  answerLate,
  claimOf,
  clock,
  deliverLate,
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
