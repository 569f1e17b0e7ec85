import { describe, expect, test } from 'vitest';
import type { Pulse } from '../../../../src/core/engine.js';
import { LeaseLostError } from '../../../../src/core/errors.js';
import { never, Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import {
  acquire,
  beatInFlight,
  clock,
  DEADLINE_MS,
  engine,
  locks,
  newForEachTest,
  TTL_MS,
  until,
  VALID_MS,
} from './kit.js';

newForEachTest();

describe('validity', () => {
  // The wall clock only ever shortens validity: set back, it leaves it to the monotonic one alone.
  test.each([
    ['', 0],
    [', whatever the wall clock says', -TTL_MS * 100],
  ])('is counted from before the beat was sent, and less the margin%s', async (_, wallMs) => {
    const lease = await locks.mutex('m').acquire();
    let sentAt = 0;
    const beat = new Pending<Pulse>();
    engine.now({
      beat: () => {
        sentAt = clock.now();
        return beat.promise;
      },
    });
    await until(() => sentAt > 0, DEADLINE_MS);
    await clock.advance(DEADLINE_MS / 2);
    engine.hang();
    beat.resolve({ alive: true });
    await settled();
    clock.moveWall(wallMs);
    expect(lease.remaining).toBe(sentAt + VALID_MS - clock.now());
    await clock.advance(sentAt + VALID_MS - clock.now() - 1);
    expect(lease.held).toBe(true);
    await clock.advance(1);
    expect(lease.held).toBe(false);
  });

  test('is counted from earlier where the beat proves only that an earlier one has counted', async () => {
    const lease = await locks.mutex('m').acquire();
    const beat = await beatInFlight();
    await clock.advance(10);
    engine.hang();
    // A moment after the open, and long before this beat was sent.
    const since = { now: 1_000, wall: clock.wall() - clock.now() + 1_000 };
    beat.resolve({ alive: true, since });
    await settled();
    expect(lease.remaining).toBe(1_000 + VALID_MS - clock.now());
    await clock.advance(1_000 + VALID_MS - clock.now());
    expect(lease.held).toBe(false);
  });

  test('is not over a moment early because the wall clock shows whole milliseconds only', async () => {
    clock.moveWall(0.9);
    engine.now({ beat: never });
    const lease = await locks.mutex('m').acquire();
    await clock.advance(VALID_MS - 0.5);
    expect(lease).toMatchObject({ held: true, remaining: 0.5 });
    await clock.advance(0.5);
    expect(lease).toMatchObject({ held: false, state: 'lost' });
  });

  test('begins before the open was sent', async () => {
    const opened = new Pending<void>();
    engine.now({ open: () => opened.promise, beat: never });
    const acquiring = acquire();
    await clock.advance(DEADLINE_MS / 2);
    opened.resolve();
    await settled();
    expect(acquiring.value!.remaining).toBe(VALID_MS - DEADLINE_MS / 2);
  });

  test('begins when the open is sent, not when the connection that it needs is begun', async () => {
    const connected = new Pending<void>();
    engine.now({ connect: () => connected.promise, beat: never });
    const acquiring = acquire();
    await clock.advance(DEADLINE_MS / 2);
    connected.resolve();
    await settled();
    expect(acquiring.value!.remaining).toBe(VALID_MS);
  });

  test('is of the ttl that the engine really keeps', async () => {
    engine.ttlMs = 3_000;
    const lease = await locks.mutex('m').acquire();
    expect(lease.remaining).toBe(2_700);
    await clock.advance(3_000 * 5);
    expect(lease.held).toBe(true);
    engine.hang();
    await clock.advance(2_700);
    expect(lease.state).toBe('lost');
  });

  test('ends though no timer ran: a stalled event loop never sees held', async () => {
    const lease = await locks.mutex('m').acquire();
    clock.stall(VALID_MS - 1);
    expect(lease.held).toBe(true);
    clock.stall(1);
    expect(lease.held).toBe(false);
    expect(lease.remaining).toBe(0);
    expect(() => lease.assertHeld()).toThrow(LeaseLostError);
    expect(lease.state).toBe('lost');
  });

  test('is 0 after release', async () => {
    const lease = await locks.mutex('m').acquire();
    await lease.release();
    expect(lease).toMatchObject({ remaining: 0, held: false, state: 'released' });
  });

  test('one late answer neither shortens nor stretches it', async () => {
    const lease = await locks.mutex('m').acquire();
    const beats: { sentAt: number; reply: Pending<Pulse> }[] = [];
    engine.now({
      beat: () => {
        const reply = new Pending<Pulse>();
        beats.push({ sentAt: clock.now(), reply });
        return reply.promise;
      },
    });
    await until(() => beats.length === 2, TTL_MS);
    const [first, second] = beats as [(typeof beats)[0], (typeof beats)[0]];
    expect(lease.state, 'the first beat is overdue').toBe('jeopardy');
    second.reply.resolve({ alive: true });
    await settled();
    first.reply.resolve({ alive: true });
    await settled();
    expect(lease.state).toBe('held');
    expect(lease.remaining).toBe(second.sentAt + VALID_MS - clock.now());
  });

  test('a late answer counts, from when its beat was sent', async () => {
    const lease = await locks.mutex('m').acquire();
    let sentAt: number | undefined;
    const late = new Pending<Pulse>();
    engine.now({
      beat: () => {
        if (sentAt !== undefined) return never();
        sentAt = clock.now();
        return late.promise;
      },
    });
    await until(() => lease.state === 'jeopardy', TTL_MS);
    late.resolve({ alive: true });
    await settled();
    expect(lease.state).toBe('held');
    expect(lease.remaining).toBe(sentAt! + VALID_MS - clock.now());
  });
});

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
