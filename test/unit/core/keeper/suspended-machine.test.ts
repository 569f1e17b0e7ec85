import { describe, expect, test } from 'vitest';
import type { Pulse } from '../../../../src/core/engine.js';
import { LeaseLostError } from '../../../../src/core/errors.js';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, locks, newForEachTest, TTL_MS, until, VALID_MS } from './kit.js';

newForEachTest();

describe('a wall clock that ran ahead: the machine was suspended', () => {
  test('held is false and the state is jeopardy until a beat succeeds, then it is held again', async () => {
    const lease = await locks.mutex('m').acquire();
    const { signal } = lease;
    clock.moveWall(TTL_MS);
    expect(lease).toMatchObject({ held: false, state: 'jeopardy', remaining: 0 });
    expect(() => lease.assertHeld()).toThrow(LeaseLostError);
    expect(signal.aborted).toBe(false);
    await until(() => lease.held, DEADLINE_MS);
    expect(lease.state).toBe('held');
    expect(signal.aborted).toBe(false);
  });

  test('a session that died meanwhile is lost by that beat', async () => {
    const lease = await locks.mutex('m').acquire();
    clock.moveWall(TTL_MS);
    engine.now({ beat: () => Promise.resolve({ alive: false }) });
    await until(() => lease.state === 'lost', DEADLINE_MS);
  });

  test('no lease is handed out before a beat has proved that we still live', async () => {
    await locks.ready();
    const beat = new Pending<Pulse>();
    engine.now({ beat: () => beat.promise });
    clock.moveWall(TTL_MS);
    const acquiring = acquire();
    await clock.advance(100);
    expect(engine.session.entered).toHaveLength(1);
    expect(engine.session.beats, 'asked at once, not at the next interval').toHaveLength(1);
    expect(acquiring.pending).toBe(true);
    beat.resolve({ alive: true });
    await settled();
    expect(acquiring.value!.held).toBe(true);
  });

  test('set back, it harms nothing', async () => {
    const lease = await locks.mutex('m').acquire();
    clock.moveWall(-TTL_MS * 100);
    expect(lease.held).toBe(true);
    expect(lease.remaining).toBeLessThanOrEqual(VALID_MS);
    engine.hang();
    await clock.advance(TTL_MS);
    expect(lease.state).toBe('lost');
  });
});
