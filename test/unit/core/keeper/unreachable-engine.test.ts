import { describe, expect, test } from 'vitest';
import { ConfigError, EngineError } from '../../../../src/core/errors.js';
import { never } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, engine, locks, newForEachTest, Outcome, TTL_MS, until } from './kit.js';

newForEachTest();

function afterMs<T>(ms: number, answer: T): Promise<T> {
  return new Promise((resolve) => clock.timer(ms, () => resolve(answer)));
}

describe('an engine that can’t be reached', () => {
  const faults = [
    ['refuses to connect', () => engine.now({ connect: () => Promise.reject(new Error('ECONNREFUSED')) })],
    ['never connects', () => engine.now({ connect: never })],
    ['never opens', () => engine.now({ open: never })],
    ['never answers to enter', () => engine.now({ enter: never, beat: never })],
  ] as const;

  test.each(faults)('and %s: an acquire rejects with EngineError at its timeout', async (_, fault) => {
    fault();
    const acquiring = acquire({ timeout: 2_000 });
    await clock.advance(1_999);
    expect(acquiring.pending).toBe(true);
    await clock.advance(1);
    expect(acquiring.error).toBeInstanceOf(EngineError);
  });

  test.each(faults)('and %s: without a timeout it rejects after one ttl', async (_, fault) => {
    fault();
    const acquiring = acquire();
    await clock.advance(TTL_MS - 1);
    expect(acquiring.pending).toBe(true);
    await clock.advance(TTL_MS / 2);
    expect(acquiring.error).toBeInstanceOf(EngineError);
  });

  test.each(faults)('and %s: tryAcquire rejects, and does not call it busy', async (_, fault) => {
    fault();
    const trying = new Outcome(locks.mutex('m').tryAcquire());
    await clock.advance(TTL_MS / 2);
    expect(trying.error).toBeInstanceOf(EngineError);
  });

  test('says why, also to those who come when it only keeps silent', async () => {
    engine.now({ open: () => Promise.reject(new Error('ECONNREFUSED')) });
    const first = new Outcome(locks.mutex('m').tryAcquire());
    await clock.advance(TTL_MS / 2);
    expect(first.error).toMatchObject({ message: expect.stringContaining('ECONNREFUSED') });
    engine.now({ open: never });
    const second = new Outcome(locks.mutex('other').tryAcquire());
    await clock.advance(TTL_MS / 2);
    expect(second.error).toMatchObject({ message: expect.stringContaining('ECONNREFUSED') });
  });

  test('any more, in the middle of a session: the same, after one ttl', async () => {
    await locks.ready();
    await clock.advance(TTL_MS * 2);
    engine.hang();
    const [waiting, trying] = [acquire(), new Outcome(locks.mutex('other').tryAcquire())];
    const timed = new Outcome(locks.mutex('third').acquire({ timeout: 2_000 }));
    await clock.advance(2_000);
    expect(timed.error).toBeInstanceOf(EngineError);
    await clock.advance(TTL_MS / 2 - 2_000);
    expect(trying.error).toBeInstanceOf(EngineError);
    expect(waiting.pending).toBe(true);
    await clock.advance(TTL_MS);
    expect(waiting.error).toBeInstanceOf(EngineError);
    expect(waiting.at).toBeGreaterThanOrEqual(TTL_MS * 3);
  });

  test('while an acquire waits in line: it rejects with EngineError, and does not wait for ever', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const acquiring = acquire();
    await clock.advance(TTL_MS * 10);
    expect(acquiring.pending).toBe(true);
    engine.hang();
    await clock.advance(TTL_MS * 3);
    expect(acquiring.error).toBeInstanceOf(EngineError);
  });

  test('any more, when a lock is passed on: who waited says so, though the lock was busy before', async () => {
    const lease = await locks.mutex('m').acquire();
    const waiting = acquire({ timeout: 2_000 });
    await clock.advance(100);
    engine.hang();
    void lease.release();
    await clock.advance(1_900);
    expect(waiting.error).toBeInstanceOf(EngineError);
  });

  test('carries the reason why', async () => {
    engine.now({ connect: () => Promise.reject(new Error('ECONNREFUSED redis://bob:Canary7@h')) });
    const acquiring = acquire({ timeout: 1_000 });
    await clock.advance(1_000);
    const { cause } = acquiring.error as EngineError;
    expect(cause).toMatchObject({ code: 'HOLDFAST_ENGINE', message: expect.stringContaining('ECONNREFUSED') });
    expect((cause as Error).message).not.toContain('Canary7');
  });

  test('and comes back in time: the acquire is served', async () => {
    engine.now({ connect: () => Promise.reject(new Error('ECONNREFUSED')) });
    const acquiring = acquire();
    await clock.advance(TTL_MS / 2);
    expect(acquiring.pending).toBe(true);
    engine.heal();
    await until(() => !acquiring.pending, TTL_MS / 2);
    expect(acquiring.value!.held).toBe(true);
  });

  test('is not asked for ever by those who gave up', async () => {
    let asked = 0;
    engine.now({
      connect: () => {
        asked += 1;
        return Promise.reject(new Error('ECONNREFUSED'));
      },
    });
    const acquiring = acquire({ timeout: 1_000 });
    await clock.advance(TTL_MS);
    expect(acquiring.error).toBeInstanceOf(EngineError);
    const before = asked;
    await clock.advance(TTL_MS * 10);
    expect(asked).toBe(before);
    expect(clock.keepsProcessAlive).toBe(false);
  });

  test('ready() rejects after one ttl, and resolves when there is a session', async () => {
    engine.now({ open: never });
    const ready = new Outcome(locks.ready());
    await clock.advance(TTL_MS - 1);
    expect(ready.pending).toBe(true);
    await clock.advance(TTL_MS / 2);
    expect(ready.error).toBeInstanceOf(EngineError);
    engine.heal();
    await expect(locks.ready()).resolves.toBeUndefined();
  });
});

describe('an engine that is far away', () => {
  test('is no engine that can’t be reached, however short a timeout is', async () => {
    engine.now({
      enter: () => afterMs(20, { state: 'held', token: engine.mint() }),
      leave: () => afterMs(20, true),
    });
    await locks.ready();
    // Busy all the time: claims are used up, left and entered anew.
    for (let user = 0; user < 200; user += 1) void new Outcome(locks.mutex('m').run(() => afterMs(10, undefined)));
    await clock.advance(20);
    const waiting: Outcome<unknown>[] = [];
    for (let ms = 1; ms < 300; ms += 7) {
      for (const timeout of [5, 15, 30, 60]) waiting.push(new Outcome(locks.mutex('m').acquire({ timeout })));
      await clock.advance(7);
    }
    await clock.advance(1_000);
    expect(new Set(waiting.map(({ error }) => (error as { code?: string }).code))).toEqual(
      new Set(['HOLDFAST_TIMEOUT']),
    );
  });
});

describe('an error that trying again can’t help', () => {
  const noRights = new EngineError('NOPERM', { retryable: false });
  const noPeer = new ConfigError('npm install ioredis');

  test.each([
    ['connect', noPeer, () => engine.now({ connect: () => Promise.reject(noPeer) })],
    ['open', noRights, () => engine.now({ open: () => Promise.reject(noRights) })],
    ['enter', noRights, () => engine.now({ enter: () => Promise.reject(noRights) })],
  ])('at %s rejects at once', async (_, error, fault) => {
    fault();
    const outcomes = [acquire(), acquire({ timeout: 60_000 }), new Outcome(locks.mutex('other').tryAcquire())];
    await settled();
    for (const outcome of outcomes) expect(outcome.error).toBe(error);
    engine.heal();
    await expect(locks.mutex('m').acquire(), 'and the next acquire asks again').resolves.toMatchObject({ held: true });
  });

  test('rejects ready() at once', async () => {
    engine.now({ open: () => Promise.reject(noRights) });
    await expect(locks.ready()).rejects.toBe(noRights);
  });
});
