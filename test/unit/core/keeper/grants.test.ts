import { describe, expect, test } from 'vitest';
import type { Place } from '../../../../src/core/engine.js';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, held, locks, newForEachTest, TTL_MS, until } from './kit.js';

newForEachTest();

describe('a grant', () => {
  test.each([[{ state: 'waiting' }], [{ state: 'held', token: 5n }]] as const)(
    'that overtakes the reply %o to its enter is a grant, once',
    async (place) => {
      const reply = new Pending<Place>();
      engine.now({ enter: () => reply.promise });
      const acquiring = acquire();
      await settled();
      const { listener, entered } = engine.session;
      listener.granted(entered[0]!.id, 5n);
      await settled();
      expect(acquiring.value).toMatchObject({ held: true, token: 5n * 1_024n });
      reply.resolve(place);
      await clock.advance(TTL_MS);
      expect(acquiring.value!.held).toBe(true);
      expect(engine.session.beats.at(-1)).toMatchObject({ count: 1, held: 1 });
      expect(engine.session.left).toEqual([]);
    },
  );

  test('whose message was lost is found by the next beat', async () => {
    engine.now({
      enter: () => Promise.resolve({ state: 'waiting' }),
      beat: (roster, session) =>
        Promise.resolve({ alive: true, ...(roster.held === 0 && { index: [held(session.entered[0]!.id, 5n)] }) }),
    });
    const acquiring = acquire();
    await until(() => !acquiring.pending, DEADLINE_MS);
    expect(acquiring.value).toMatchObject({ held: true, token: 5n * 1_024n });
    await clock.advance(TTL_MS);
    expect(acquiring.value!.held).toBe(true);
    expect(engine.session.left).toEqual([]);
  });

  test('that is told twice is one grant: the next waiter is not served by it', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const [first, second] = [acquire(), acquire()];
    await settled();
    const { listener, entered } = engine.session;
    listener.granted(entered[0]!.id, 5n);
    listener.granted(entered[0]!.id, 5n);
    await settled();
    listener.granted(entered[0]!.id, 5n);
    await settled();
    expect(first.value!.held).toBe(true);
    expect(second.pending).toBe(true);
  });

  test('of an id that nobody knows is harmless', async () => {
    const lease = await locks.mutex('m').acquire();
    engine.session.listener.granted('no such claim', 5n);
    engine.session.listener.lost('no such claim', { reason: 'evicted' });
    expect(lease.held).toBe(true);
  });
});
