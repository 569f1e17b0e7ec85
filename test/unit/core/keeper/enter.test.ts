import { describe, expect, test } from 'vitest';
import type { Place } from '../../../../src/core/engine.js';
import { never, Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, engine, locks, newForEachTest, TTL_MS, until } from './kit.js';

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
