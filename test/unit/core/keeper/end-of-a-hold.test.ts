import { describe, expect, test } from 'vitest';
import type { IndexedClaim } from '../../../../src/core/engine.js';
import { ClosedError } from '../../../../src/core/errors.js';
import { never, Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, locks, lossOf, newForEachTest, Outcome, TTL_MS } from './kit.js';

newForEachTest();

describe('a downgrade', () => {
  test('is told to the engine until it has heard it', async () => {
    const lease = await locks.rwLock('m').write.acquire();
    engine.now({
      reweigh: () => (engine.session.reweighed.length < 3 ? Promise.reject(new Error('reset')) : Promise.resolve()),
    });
    const reader = await lease.downgrade();
    expect(reader.held).toBe(true);
    expect(reader.token).toBeGreaterThan(lease.token);
    await clock.advance(TTL_MS);
    expect(engine.session.reweighed.map(({ weight }) => weight)).toEqual([1, 1, 1]);
    expect(reader.held).toBe(true);
  });

  test('does not outlast maxHold', async () => {
    const lease = await locks.rwLock('m').write.acquire({ maxHold: 5_000 });
    await clock.advance(3_000);
    const reader = await lease.downgrade();
    await clock.advance(1_999);
    expect(reader.held).toBe(true);
    await clock.advance(1);
    expect(reader.state).toBe('lost');
    expect(lossOf(reader)).toBe('maxHold');
    expect(engine.session.left).toHaveLength(1);
  });
});

describe('maxHold', () => {
  test('gives the lock back, and who releases it or ran inside waits until it is back', async () => {
    const left = new Pending<boolean>();
    engine.now({ leave: () => left.promise });
    const lease = await locks.mutex('m').acquire({ maxHold: 1_000 });
    await clock.advance(1_000);
    expect(lease.state).toBe('lost');
    expect(engine.session.left).toHaveLength(1);
    const releasing = new Outcome(lease.release());
    await settled();
    expect(releasing.pending).toBe(true);
    left.resolve(true);
    await settled();
    expect(releasing.value).toBe(false);
  });
});

describe('close', () => {
  test('ends the session, tells those who wait and those who hold, and beats no more', async () => {
    engine.now({
      enter: (claim) => Promise.resolve(claim.line.name === 'm' ? { state: 'waiting' } : { state: 'held', token: 5n }),
    });
    const lease = await locks.mutex('held').acquire();
    const { signal } = lease;
    const waiting = acquire();
    await settled();
    await locks.close();
    expect(waiting.error).toBeInstanceOf(ClosedError);
    expect(lease.held).toBe(false);
    expect(signal.reason).toMatchObject({ reason: 'released' });
    expect(engine.session.closed).toBe(1);
    await clock.advance(TTL_MS * 3);
    expect(engine.session.beats).toEqual([]);
    await expect(locks.mutex('m').acquire()).rejects.toBeInstanceOf(ClosedError);
  });

  test('does not wait for ever for an engine that does not answer', async () => {
    await locks.mutex('m').acquire();
    engine.hang();
    const closing = new Outcome(locks.close());
    await clock.advance(TTL_MS);
    expect(closing.pending).toBe(false);
    expect(closing.error).toBeUndefined();
  });

  test('does not wait for what it would have to leave again and again', async () => {
    const leases = [
      await locks.mutex('a').acquire(),
      await locks.mutex('b').acquire(),
      await locks.mutex('c').acquire(),
    ];
    const index = engine.session.entered.map(({ id, line }): IndexedClaim => ({ id, line, state: 'held', token: 1n }));
    engine.now({ leave: never, beat: () => Promise.resolve({ alive: true, index }) });
    for (const lease of leases) {
      void lease.release();
      await clock.advance(DEADLINE_MS / 3);
    }
    const closing = new Outcome(locks.close());
    await clock.advance(TTL_MS);
    expect(closing.pending).toBe(false);
    expect(engine.session.closed).toBe(1);
  });

  test('does not wait for ever for a connection that is never made', async () => {
    engine.hang();
    const acquiring = acquire();
    await settled();
    const closing = new Outcome(locks.close());
    await clock.advance(TTL_MS);
    expect(acquiring.error).toBeInstanceOf(ClosedError);
    expect(closing.pending).toBe(false);
  });
});
