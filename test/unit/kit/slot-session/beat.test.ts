import { describe, expect, test } from 'vitest';
import { settled } from '../../virtual-clock.js';
import {
  answerLate,
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

describe('a beat', () => {
  test('renews all that is held with one call', async () => {
    const claims = ['a', 'b', 'c'].map((id) => claimOf(id, { line: { kind: 'lock', name: id } }));
    for (const claim of claims) await hold(claim);
    await clock.advance(BEAT_MS);
    expect(await session.beat(rosterOf(claims))).toEqual({ alive: true });
    expect(store.sent('keep')).toEqual(['keep a,b,c']);
    expect(store.until('c', 'c')).toBe(BEAT_MS + TTL_MS);
  });

  test('tells what was lost, and who is next of us asks', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    store.free(NAME, 'a');
    await session.beat(rosterOf([first], [second]));
    await settled();
    expect(told).toEqual(['lost a', 'granted b']);
    expect(await session.leave(first)).toBe(false);
    expect(store.holders(NAME)).toEqual(['b']);
  });

  test('gives back what it tells as lost, also where the store has put it back', async () => {
    const claim = claimOf('a');
    await hold(claim);
    // Most nodes had forgotten it: renewed on all of them, it counts as lost all the same.
    store.network = async (call, run) => (call.startsWith('keep') ? (run(), ['a'] as never) : run());
    await session.beat(rosterOf([claim]));
    await settled();
    expect(told).toEqual(['lost a']);
    expect(store.holders(NAME)).toEqual([]);
  });

  test('that fails loses nothing', async () => {
    const claim = claimOf('a');
    await hold(claim);
    store.network = () => Promise.reject(new Error('no connection'));
    await expect(session.beat(rosterOf([claim]))).rejects.toThrow('no connection');
    heal();
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
    expect(told).toEqual([]);
  });

  test('answers the index where the core believes something else', async () => {
    const [held, waiting] = [claimOf('a'), claimOf('b')];
    await hold(held);
    await session.enter(waiting);
    expect(await session.beat(rosterOf([held], [waiting]))).toEqual({ alive: true });
    const index = [
      { id: 'a', line: held.line, state: 'held', token: 1n },
      { id: 'b', line: held.line, state: 'waiting', token: undefined },
    ];
    for (const wrong of [rosterOf([held]), rosterOf([held, waiting]), rosterOf([], [held, waiting])])
      expect(await session.beat(wrong)).toEqual({ alive: true, index });
    expect(await session.beat(rosterOf([held], [], [waiting]))).toEqual({ alive: true });
  });

  test('that comes after one ttl without any finds the session dead, and nobody can enter it', async () => {
    const claim = claimOf('a');
    await hold(claim);
    clock.stall(TTL_MS);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: false });
    expect(await session.enter(claimOf('b'))).toEqual({ state: 'gone' });
  });

  test('that is answered after a later one takes nothing back', async () => {
    const claim = claimOf('a');
    await hold(claim);
    const gate = answerLate('keep');
    const early = session.beat(rosterOf([claim]));
    await clock.advance(BEAT_MS);
    heal();
    await session.beat(rosterOf([claim]));
    gate.resolve();
    await early;
    await clock.advance(TTL_MS - 1);
    expect(await session.beat(rosterOf([claim]))).toMatchObject({ alive: true });
  });
});

test('a loss that the store notices by itself is told, and who is next of us asks', async () => {
  const [first, second] = [claimOf('a'), claimOf('b')];
  await hold(first);
  await session.enter(second);
  store.free(NAME, 'a');
  store.lost('a', { reason: 'session' });
  await settled();
  expect(told).toEqual(['lost a', 'granted b']);
  store.lost('a', { reason: 'session' });
  expect(told).toHaveLength(2);
});
