import { describe, expect, test } from 'vitest';
import type { Place } from '../../../../src/core/engine.js';
import { never, Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, held, locks, newForEachTest, TTL_MS, until } from './kit.js';

newForEachTest();

describe('an enter without an answer', () => {
  test.each([
    ['silence', never],
    ['an error', () => Promise.reject(new Error('ECONNRESET'))],
  ])('(%s) is sent again with the same id', async (_, fail) => {
    engine.now({
      enter: () => (engine.session.entered.length < 3 ? fail() : Promise.resolve({ state: 'held', token: 5n })),
    });
    const acquiring = acquire();
    await until(() => !acquiring.pending, TTL_MS);
    expect(acquiring.value!.held).toBe(true);
    const { entered, left } = engine.session;
    expect(entered).toHaveLength(3);
    expect(new Set(entered.map(({ id, serial }) => `${id} ${serial}`)).size).toBe(1);
    expect(left).toEqual([]);
  });

  test('is answered twice at last, and counted once', async () => {
    const first = new Pending<Place>();
    engine.now({
      enter: () =>
        engine.session.entered.length === 1 ? first.promise : Promise.resolve({ state: 'held', token: 5n }),
    });
    const acquiring = acquire();
    await until(() => !acquiring.pending, TTL_MS);
    first.resolve({ state: 'waiting' });
    await clock.advance(TTL_MS);
    expect(acquiring.value!.held).toBe(true);
    expect(engine.session.left).toEqual([]);
    expect(engine.session.beats.at(-1)).toMatchObject({ count: 1, held: 1 });
  });

  test('is named in the roster as unsettled, and not counted', async () => {
    await locks.mutex('a').acquire();
    await locks.mutex('b').acquire();
    engine.now({ enter: never });
    acquire();
    await until(() => engine.session.beats.length > 0, TTL_MS);
    const [a, b, m] = engine.session.entered;
    expect(engine.session.beats[0]).toEqual({
      count: 2,
      held: 2,
      checksum: a!.serial + b!.serial,
      unsettled: [m!.id],
    });
  });
});

describe('an abort', () => {
  test('rejects with its own reason, and the withdrawal goes through', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const abort = new AbortController();
    const acquiring = acquire({ signal: abort.signal });
    await settled();
    abort.abort('enough');
    await settled();
    expect(acquiring.error).toBe('enough');
    expect(engine.session.left).toEqual([engine.session.entered[0]!.id]);
    // The grant was on its way: nobody must be left holding it.
    engine.session.listener.granted(engine.session.entered[0]!.id, 5n);
    await clock.advance(TTL_MS);
    expect(engine.session.beats.at(-1)).toEqual({ count: 0, held: 0, checksum: 0, unsettled: [] });
  });

  test('before the session is open leaves nothing to withdraw', async () => {
    const opened = new Pending<void>();
    engine.now({ open: () => opened.promise });
    const abort = new AbortController();
    const acquiring = acquire({ signal: abort.signal });
    await settled();
    abort.abort('enough');
    opened.resolve();
    await clock.advance(TTL_MS);
    expect(acquiring.error).toBe('enough');
    expect(engine.session.entered).toEqual([]);
  });
});

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
