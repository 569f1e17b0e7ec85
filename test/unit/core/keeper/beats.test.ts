import { describe, expect, test } from 'vitest';
import { never } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, locks, lossOf, newForEachTest, TTL_MS, until, VALID_MS } from './kit.js';

newForEachTest();

describe('beats', () => {
  test('come at least every third of the ttl, one for all locks', async () => {
    const beatsAt: number[] = [];
    engine.now({
      beat: () => {
        beatsAt.push(clock.now());
        return Promise.resolve({ alive: true });
      },
    });
    const leases = await Promise.all(Array.from({ length: 500 }, (_, at) => locks.mutex(`m${at}`).acquire()));
    await clock.advance(TTL_MS * 10);
    expect(leases.every(({ held }) => held)).toBe(true);
    const gaps = beatsAt.map((at, number) => at - (beatsAt[number - 1] ?? 0));
    expect(Math.max(...gaps)).toBeLessThanOrEqual(DEADLINE_MS);
    expect(beatsAt.length).toBeLessThanOrEqual(10 * 3 * 1.25 + 1);
    expect(engine.session.beats.at(-1)).toEqual({ count: 500, held: 500, checksum: (500 * 501) / 2, unsettled: [] });
  });

  test('do not keep the process alive for a lock that is held; a pending acquire does', async () => {
    const lease = await locks.mutex('m').acquire();
    expect(clock.keepsProcessAlive).toBe(false);
    await clock.advance(TTL_MS * 2);
    expect(clock.keepsProcessAlive).toBe(false);

    const abort = new AbortController();
    const waiting = acquire({ signal: abort.signal });
    await settled();
    expect(clock.keepsProcessAlive).toBe(true);
    await clock.advance(TTL_MS * 2);
    expect(clock.keepsProcessAlive).toBe(true);

    abort.abort('enough');
    await settled();
    expect(waiting.error).toBe('enough');
    expect(clock.keepsProcessAlive).toBe(false);
    expect(lease.held).toBe(true);
  });
});

describe('a failed beat', () => {
  test.each([
    ['an error', () => Promise.reject(new Error('ECONNRESET'))],
    ['silence', never],
  ])('by %s is jeopardy, not loss, and the next one that succeeds ends it', async (_, beat) => {
    const lease = await locks.mutex('m').acquire();
    const { signal } = lease;
    engine.now({ beat });
    await until(() => lease.state === 'jeopardy', TTL_MS * 0.8);
    expect(lease.held).toBe(true);
    expect(signal.aborted).toBe(false);
    engine.heal();
    await until(() => lease.state === 'held', TTL_MS / 6);
    expect(lease.held).toBe(true);
    await clock.advance(TTL_MS * 3);
    expect(lease.state).toBe('held');
    expect(engine.sessions).toHaveLength(1);
  });

  test('is repeated well before validity ends: one lost packet never costs a lease', async () => {
    const lease = await locks.mutex('m').acquire();
    let beats = 0;
    engine.now({
      beat: () => {
        beats += 1;
        return beats === 1 ? never() : Promise.resolve({ alive: true });
      },
    });
    await clock.advance(TTL_MS * 2);
    expect(lease.state).toBe('held');
  });

  test('is repeated in time also where the engine keeps a shorter ttl than was asked for', async () => {
    engine.ttlMs = TTL_MS / 3;
    const lease = await locks.mutex('m').acquire();
    let beats = 0;
    engine.now({
      beat: () => {
        beats += 1;
        return beats === 1 ? never() : Promise.resolve({ alive: true });
      },
    });
    await clock.advance(TTL_MS);
    expect(lease.state).toBe('held');
  });

  test('after failed beat becomes loss when validity ends, once, with the reason expired', async () => {
    const lease = await locks.mutex('m').acquire();
    let aborts = 0;
    lease.signal.addEventListener('abort', () => (aborts += 1));
    engine.hang();
    await clock.advance(VALID_MS - 1);
    expect(lease.state).toBe('jeopardy');
    await clock.advance(TTL_MS * 3);
    expect(lease.state).toBe('lost');
    expect(aborts).toBe(1);
    expect(lossOf(lease)).toBe('expired');
    expect(await lease.release()).toBe(false);
  });
});
