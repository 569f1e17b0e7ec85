import { describe, expect, test } from 'vitest';
import type { Pulse } from '../../../../src/core/engine.js';
import { never, Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, locks, lossOf, newForEachTest, TTL_MS, until, VALID_MS } from './kit.js';

newForEachTest();

describe('a lost session', () => {
  test('is not revived by the late answer of its beat', async () => {
    const lease = await locks.mutex('m').acquire();
    const beat = new Pending<Pulse>();
    engine.hang();
    engine.now({ beat: () => beat.promise });
    await clock.advance(VALID_MS);
    engine.heal();
    beat.resolve({ alive: true });
    await clock.advance(TTL_MS);
    expect(lease.state).toBe('lost');
    const again = await locks.mutex('m').acquire();
    expect(again.held).toBe(true);
    expect(engine.sessions).toHaveLength(2);
  });

  test.each([
    ['a beat says so', 'session', () => engine.now({ beat: () => Promise.resolve({ alive: false }) })],
    ['the engine pushes it', 'connection', () => engine.session.listener.ended({ reason: 'connection' })],
    [
      'an enter says so',
      'session',
      () => {
        const [dead] = engine.sessions;
        engine.now({
          enter: (_, session) => Promise.resolve(session === dead ? { state: 'gone' } : { state: 'waiting' }),
        });
        void locks
          .mutex('other')
          .acquire()
          .catch(() => undefined);
      },
    ],
  ])('when %s: all leases are lost, by %s, and the next demand opens a new one', async (_, reason, lose) => {
    const leases = [await locks.mutex('m').acquire(), await locks.semaphore('s', 3).acquire()];
    for (const { signal } of leases) expect(signal.aborted).toBe(false);
    lose();
    await until(() => leases.every(({ state }) => state === 'lost'), DEADLINE_MS);
    for (const lease of leases) expect(lossOf(lease)).toBe(reason);
    engine.heal();
    const again = await locks.mutex('m').acquire();
    expect(again.held).toBe(true);
    const [dead, alive] = engine.sessions;
    expect(engine.sessions).toHaveLength(2);
    dead!.listener.ended({ reason: 'connection' });
    expect(dead!.closed, 'told once that it is over, however often we hear it').toBe(1);
    expect(again.held).toBe(true);
    expect(alive!.id).not.toBe(dead!.id);
    expect(alive!.entered[0]!.id).not.toBe(dead!.entered[0]!.id);
  });

  test('without anybody who wants one, no new session is opened', async () => {
    await locks.mutex('m').acquire();
    engine.session.listener.ended({ reason: 'connection' });
    await clock.advance(TTL_MS * 3);
    expect(engine.sessions).toHaveLength(1);
  });

  test('does not cost a waiting claim its wait: it stands again in a new session, and is served', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const acquiring = acquire();
    await clock.advance(TTL_MS * 5);
    expect(acquiring.pending).toBe(true);
    engine.now({ beat: (_, session) => Promise.resolve({ alive: session !== engine.sessions[0] }) });
    await until(() => engine.sessions[1]?.entered.length === 1, TTL_MS);
    expect(acquiring.pending).toBe(true);
    const [claim] = engine.session.entered;
    expect(claim!.wait).toBe(true);
    engine.session.listener.granted(claim!.id, 77n);
    await settled();
    expect(acquiring.value).toMatchObject({ held: true, token: 77n * 1_024n });
  });

  test('after lost session is not opened without a pause, though each is lost at once', async () => {
    engine.now({
      // The bound is for this test alone: without a pause it would never end.
      enter: () => (engine.sessions.length < 100 ? Promise.resolve({ state: 'gone' }) : never()),
    });
    acquire({ timeout: TTL_MS });
    await clock.advance(TTL_MS);
    expect(engine.sessions.length).toBeGreaterThan(1);
    expect(engine.sessions.length).toBeLessThan(100);
  });

  test('that ends before the answer to its open has come is not used', async () => {
    engine.now({
      open: (session) => {
        if (engine.sessions.length === 1) session.listener.ended({ reason: 'connection' });
        return Promise.resolve();
      },
      enter: (_, session) =>
        Promise.resolve(session === engine.sessions[0] ? { state: 'gone' } : { state: 'held', token: 5n }),
    });
    const acquiring = acquire();
    await clock.advance(TTL_MS);
    expect(acquiring.value).toMatchObject({ held: true });
    expect(engine.sessions[0]!.closed).toBeGreaterThan(0);
  });
});
