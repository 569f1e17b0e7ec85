/**
 * The keeper against an engine that does what it is told, on a clock that moves when it is told. Everything is seen as a
 * user sees it: through acquire and its lease.
 */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { IndexedClaim, Place, Pulse } from '../../../src/core/engine.js';
import { ConfigError, EngineError, LeaseLostError } from '../../../src/core/errors.js';
import { Holdfast, type HoldfastOptions } from '../../../src/holdfast.js';
import type { Lease } from '../../../src/locks/lease.js';
import { never, Pending, ScriptedEngine } from '../scripted-engine.js';
import { settled, VirtualClock } from '../virtual-clock.js';

const TTL_MS = 9_000;
/** What is left of a ttl when the margin for drifting clocks is taken off. */
const VALID_MS = TTL_MS * 0.9;
const DEADLINE_MS = TTL_MS / 3;

let engine: ScriptedEngine;
let clock: VirtualClock;
let locks: Holdfast;

beforeEach(() => {
  engine = new ScriptedEngine();
  clock = new VirtualClock();
  locks = open();
});

afterEach(async () => {
  engine.heal();
  const closing = locks.close();
  await clock.advance(TTL_MS);
  await closing;
});

function open(options: HoldfastOptions = {}): Holdfast {
  return new Holdfast(engine, { clock, ttl: TTL_MS, ...options });
}

/** What became of a promise, without waiting for it. */
class Outcome<T> {
  value: T | undefined;
  error: unknown;
  at: number | undefined;

  constructor(promise: Promise<T>) {
    promise.then(
      (value) => {
        this.value = value;
        this.at = clock.now();
      },
      (error: unknown) => {
        this.error = error;
        this.at = clock.now();
      },
    );
  }

  get pending(): boolean {
    return this.at === undefined;
  }
}

function acquire(options: { timeout?: number; signal?: AbortSignal } = {}): Outcome<Lease> {
  return new Outcome(locks.mutex('m').acquire(options));
}

/** Lets time pass in small steps until it is so. */
async function until(condition: () => boolean, withinMs: number): Promise<void> {
  const end = clock.now() + withinMs;
  await settled();
  while (!condition() && clock.now() < end) await clock.advance(Math.min(50, end - clock.now()));
  expect(condition(), `within ${withinMs} ms`).toBe(true);
}

function held(id: string, token = 1n): IndexedClaim {
  return { id, line: { kind: 'lock', name: 'm' }, state: 'held', token };
}

function lossOf(lease: Lease): unknown {
  return (lease.signal.reason as LeaseLostError | undefined)?.reason;
}

/** The next beat, and only that, answers this. */
async function answerBeat(index: readonly IndexedClaim[]): Promise<void> {
  const { beats } = engine.session;
  const before = beats.length;
  engine.now({ beat: () => Promise.resolve(beats.length === before + 1 ? { alive: true, index } : { alive: true }) });
  await until(() => beats.length > before, TTL_MS);
  await settled();
}

/** Beats are on their way until they are answered. */
async function beatInFlight(): Promise<Pending<Pulse>> {
  const reply = new Pending<Pulse>();
  const before = engine.session.beats.length;
  engine.now({ beat: () => reply.promise });
  await until(() => engine.session.beats.length > before, TTL_MS);
  return reply;
}

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

describe('a late answer', () => {
  test('to open: that session is closed and never used', async () => {
    const late = new Pending<void>();
    engine.now({ open: () => (engine.sessions.length === 1 ? late.promise : Promise.resolve()) });
    const acquiring = acquire();
    await until(() => !acquiring.pending, TTL_MS);
    expect(acquiring.value!.held).toBe(true);
    expect(engine.sessions).toHaveLength(2);
    late.resolve();
    await clock.advance(TTL_MS * 2);
    expect(engine.sessions[0]).toMatchObject({ closed: 1, entered: [], beats: [] });
    expect(acquiring.value!.held).toBe(true);
  });

  test('to open, after close: that session is closed too', async () => {
    const late = new Pending<void>();
    engine.now({ open: () => late.promise });
    const acquiring = acquire();
    await settled();
    const closing = locks.close();
    await settled();
    expect(acquiring.error).toBeInstanceOf(ConfigError);
    late.resolve();
    await closing;
    await settled();
    expect(engine.session.closed).toBe(1);
  });

  test.each([
    ['before its own deadline', 500],
    ['after its own deadline', DEADLINE_MS + 500],
  ])('to enter, after the acquire was given up and %s, is answered by a leave', async (_, afterMs) => {
    const reply = new Pending<Place>();
    engine.now({ enter: () => reply.promise });
    const acquiring = acquire({ timeout: 100 });
    await clock.advance(afterMs);
    expect(acquiring.error).toBeInstanceOf(EngineError);
    const [claim] = engine.session.entered;
    expect(engine.session.left, 'withdrawn at once, because the enter may have arrived').toEqual([claim!.id]);
    reply.resolve({ state: 'held', token: 5n });
    await settled();
    expect(engine.session.left).toEqual([claim!.id, claim!.id]);
  });

  test('to an enter that was refused needs no leave', async () => {
    const reply = new Pending<Place>();
    engine.now({ enter: () => reply.promise });
    acquire({ timeout: 100 });
    await clock.advance(500);
    const before = engine.session.left.length;
    reply.resolve({ state: 'refused' });
    await settled();
    expect(engine.session.left).toHaveLength(before);
  });

  test('to leave changes nothing: the release was answered before, and the beat mends the rest', async () => {
    const lease = await locks.mutex('m').acquire();
    const [claim] = engine.session.entered;
    const reply = new Pending<boolean>();
    engine.now({ leave: () => reply.promise });
    const releasing = new Outcome(lease.release());
    await clock.advance(DEADLINE_MS / 2);
    expect(releasing.pending).toBe(true);
    await clock.advance(DEADLINE_MS / 2);
    expect(releasing.value).toBe(true);
    engine.heal();
    engine.now({ beat: () => Promise.resolve({ alive: true, index: [held(claim!.id)] }) });
    await until(() => engine.session.left.length === 2, TTL_MS);
    expect(engine.session.left).toEqual([claim!.id, claim!.id]);
    reply.resolve(true);
    await settled();
    expect(releasing.value).toBe(true);
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

  test('is released as lost where the engine no longer had it', async () => {
    const lease = await locks.mutex('m').acquire();
    engine.now({ leave: () => Promise.resolve(false) });
    expect(await lease.release()).toBe(false);
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
    expect(waiting.error).toBeInstanceOf(ConfigError);
    expect(lease.held).toBe(false);
    expect(signal.reason).toMatchObject({ reason: 'released' });
    expect(engine.session.closed).toBe(1);
    await clock.advance(TTL_MS * 3);
    expect(engine.session.beats).toEqual([]);
    await expect(locks.mutex('m').acquire()).rejects.toBeInstanceOf(ConfigError);
  });

  test('does not wait for ever for an engine that does not answer', async () => {
    await locks.mutex('m').acquire();
    engine.hang();
    const closing = new Outcome(locks.close());
    await clock.advance(TTL_MS);
    expect(closing.pending).toBe(false);
    expect(closing.error).toBeUndefined();
  });

  test('does not wait for ever for a connection that is never made', async () => {
    engine.hang();
    const acquiring = acquire();
    await settled();
    const closing = new Outcome(locks.close());
    await clock.advance(TTL_MS);
    expect(acquiring.error).toBeInstanceOf(ConfigError);
    expect(closing.pending).toBe(false);
  });
});
