import { describe, expect, test } from 'vitest';
import type { Place } from '../../../../src/core/engine.js';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import {
  acquire,
  answerBeat,
  beatInFlight,
  clock,
  engine,
  held,
  locks,
  lossOf,
  newForEachTest,
  TTL_MS,
} from './kit.js';

newForEachTest();

describe('the index of a beat', () => {
  test('with a claim that we do not know: it is left', async () => {
    const lease = await locks.mutex('m').acquire();
    await answerBeat([held(engine.session.entered[0]!.id), held('stranger')]);
    expect(engine.session.left).toEqual(['stranger']);
    expect(lease.held).toBe(true);
  });

  test('without a claim of ours: it is lost', async () => {
    const [kept, missing] = [await locks.mutex('kept').acquire(), await locks.mutex('m').acquire()];
    expect(missing.signal.aborted).toBe(false);
    await answerBeat([held(engine.session.entered[0]!.id)]);
    expect(kept.held).toBe(true);
    expect(missing.state).toBe('lost');
    expect(lossOf(missing)).toBe('session');
    expect(await missing.release()).toBe(false);
  });

  test('with a claim of ours that waits though we thought that we hold it: it is lost', async () => {
    const lease = await locks.mutex('m').acquire();
    await answerBeat([{ ...held(engine.session.entered[0]!.id), state: 'waiting' }]);
    expect(lease.state).toBe('lost');
  });

  test('without a claim whose enter is not answered yet: it is not lost', async () => {
    const reply = new Pending<Place>();
    engine.now({ enter: () => reply.promise });
    const acquiring = acquire();
    await settled();
    await answerBeat([]);
    reply.resolve({ state: 'held', token: 5n });
    await settled();
    expect(acquiring.value!.held).toBe(true);
    expect(engine.session.entered).toHaveLength(1);
  });

  test('without a waiting claim of ours: it stands again, and is served', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const acquiring = acquire();
    await settled();
    engine.now({ enter: () => Promise.resolve({ state: 'held', token: 5n }) });
    await answerBeat([]);
    expect(acquiring.value!.held).toBe(true);
    expect(engine.sessions).toHaveLength(1);
  });

  describe('that is older than what we know by now', () => {
    test('costs no claim that was acknowledged meanwhile', async () => {
      await locks.mutex('a').acquire();
      const reply = await beatInFlight();
      const lease = await locks.mutex('m').acquire();
      reply.resolve({ alive: true, index: [held(engine.session.entered[0]!.id)] });
      await settled();
      expect(lease.state).toBe('held');
    });

    test('costs no claim that was granted meanwhile', async () => {
      engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
      const acquiring = acquire();
      await settled();
      const reply = await beatInFlight();
      const { listener, entered } = engine.session;
      const [claim] = entered;
      listener.granted(claim!.id, 5n);
      await settled();
      expect(acquiring.value!.held).toBe(true);
      reply.resolve({ alive: true, index: [{ ...held(claim!.id), state: 'waiting' }] });
      await settled();
      expect(acquiring.value!.state).toBe('held');
      expect(engine.session.left).toEqual([]);
    });

    test('does not bring back what was released meanwhile', async () => {
      const lease = await locks.mutex('m').acquire();
      const reply = await beatInFlight();
      await lease.release();
      const { entered, left } = engine.session;
      reply.resolve({ alive: true, index: [held(entered[0]!.id)] });
      await settled();
      expect(lease.state).toBe('released');
      // Whether it is left once or twice is the same to the engine.
      expect(new Set(left)).toEqual(new Set([entered[0]!.id]));
    });
  });
});

describe('a claim that the engine takes away', () => {
  test('is lost with the engine’s reason, and answered by a leave', async () => {
    const [lease, other] = [await locks.mutex('m').acquire(), await locks.mutex('other').acquire()];
    const { signal } = lease;
    const [claim] = engine.session.entered;
    engine.session.listener.lost(claim!.id, { reason: 'evicted', detail: 'stuck deploy' });
    await settled();
    expect(lease.state).toBe('lost');
    expect(signal.reason).toMatchObject({ reason: 'evicted', message: expect.stringContaining('stuck deploy') });
    expect(engine.session.left).toEqual([claim!.id]);
    expect(other.held).toBe(true);
  });

  test('stands until what was done under it has stopped, through beats that have it in their index', async () => {
    const lease = await locks.mutex('m').acquire();
    const [stopped, stoppedToo] = [new Pending<void>(), new Pending<void>()];
    lease.onEvicted(() => stopped.promise);
    lease.onEvicted(() => stoppedToo.promise);
    const [claim] = engine.session.entered;
    engine.session.listener.lost(claim!.id, { reason: 'evicted' });
    expect(lease.held).toBe(false);
    await answerBeat([held(claim!.id)]);
    engine.session.listener.lost(claim!.id, { reason: 'evicted' });
    stopped.resolve();
    await settled();
    expect(engine.session.left).toEqual([]);
    stoppedToo.resolve();
    await settled();
    expect(engine.session.left).toEqual([claim!.id]);
  });

  test.for(['never', 'not'])('stands for one ttl at most, if what was done under it does %s stop', async (how) => {
    const lease = await locks.mutex('m').acquire();
    lease.onEvicted(() => {
      if (how === 'not') throw new Error('it can’t be stopped');
      return new Promise(() => {});
    });
    const [claim] = engine.session.entered;
    engine.session.listener.lost(claim!.id, { reason: 'evicted' });
    await clock.advance(TTL_MS - 1);
    expect(engine.session.left).toEqual([]);
    await clock.advance(1);
    expect(engine.session.left).toEqual([claim!.id]);
  });

  test('asks nobody to stop who has given it back, or has lost it otherwise', async () => {
    const [released, lost] = [await locks.mutex('a').acquire(), await locks.mutex('b').acquire()];
    let asked = 0;
    for (const lease of [released, lost]) lease.onEvicted(async () => (asked += 1));
    const [first, second] = engine.session.entered;
    await released.release();
    engine.session.listener.lost(first!.id, { reason: 'evicted' });
    engine.session.listener.lost(second!.id, { reason: 'connection' });
    await settled();
    expect(asked).toBe(0);
    expect(engine.session.left).toEqual([first!.id, second!.id]);
  });

  test('is released as lost where the engine no longer had it', async () => {
    const lease = await locks.mutex('m').acquire();
    engine.now({ leave: () => Promise.resolve(false) });
    expect(await lease.release()).toBe(false);
  });
});
