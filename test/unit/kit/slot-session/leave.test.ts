import { beforeEach, describe, expect, test } from 'vitest';
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

describe('where calls may overtake each other', () => {
  beforeEach(() => {
    store.unordered = true;
  });

  test('a drop is sent when the take of its claim is over, and the leave does not wait for that', async () => {
    const gate = deliverLate('take');
    const claim = claimOf('a');
    const entering = session.enter(claim);
    await settled();
    expect(await session.leave(claim)).toBe(true);
    await settled();
    expect(store.calls).toEqual(['take a']);
    gate.resolve();
    expect((await entering).state).not.toBe('held');
    await settled();
    // Once: the second would come upon a connection that carries another's lock by then.
    expect(store.sent('drop')).toEqual(['drop a']);
    expect(store.holders(NAME)).toEqual([]);
  });

  test('a drop is sent, too, if the take failed', async () => {
    const gate = new Pending<void>();
    store.network = async (call, run) => {
      const answer = run();
      if (call.startsWith('take')) await gate.promise;
      return answer;
    };
    const claim = claimOf('a');
    const entering = session.enter(claim).catch((error: unknown) => (error as Error).message);
    await settled();
    await session.leave(claim);
    gate.reject(new Error('lost'));
    expect(await entering).toBe('lost');
    await settled();
    expect(store.holders(NAME)).toEqual([]);
  });

  test('a claim that is asked about twice at once is one take', async () => {
    const gate = deliverLate('take');
    const claim = claimOf('a');
    const places = [session.enter(claim), session.enter(claim)];
    await settled();
    gate.resolve();
    expect(await Promise.all(places)).toEqual([
      { state: 'held', token: 1n },
      { state: 'held', token: 1n },
    ]);
    expect(store.calls).toEqual(['take a']);
  });

  test('the next of us asks when the drop has been answered, and not between take and drop', async () => {
    const gate = deliverLate('take a');
    const [first, second] = [claimOf('a'), claimOf('b')];
    void session.enter(first);
    await settled();
    await session.leave(first);
    const entering = session.enter(second);
    await settled();
    expect(store.sent('take b')).toEqual([]);
    gate.resolve();
    expect(await entering).toMatchObject({ state: 'held' });
    expect(store.sent('drop a').length).toBeGreaterThan(0);
  });

  test('a take that is never answered keeps the next of us no longer than any call', async () => {
    store.network = (call, run) => (call === 'take a' ? never() : Promise.resolve(run()));
    const [first, second] = [claimOf('a'), claimOf('b')];
    void session.enter(first);
    await settled();
    expect(await session.leave(first)).toBe(true);
    const entering = session.enter(second);
    await clock.advance(BEAT_MS);
    expect(await entering).toMatchObject({ state: 'held' });
  });

  test('close drops what is on its way, and closes the store after that', async () => {
    const gate = deliverLate('take');
    const entering = session.enter(claimOf('a'));
    await settled();
    const closing = session.close();
    await settled();
    expect(store.closed).toBe(0);
    gate.resolve();
    await Promise.all([closing, entering]);
    expect(store.closed).toBe(1);
    expect(store.holders(NAME)).toEqual([]);
  });
});

test('where calls keep their order, a drop is sent at once: it gets there after the take', async () => {
  deliverLate('take');
  const claim = claimOf('a');
  void session.enter(claim);
  await settled();
  void session.leave(claim);
  expect(store.calls).toEqual(['take a', 'drop a']);
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
