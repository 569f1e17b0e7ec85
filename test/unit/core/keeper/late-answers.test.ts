import { describe, expect, test } from 'vitest';
import type { Place } from '../../../../src/core/engine.js';
import { ClosedError, EngineError } from '../../../../src/core/errors.js';
import { Pending } from '../../scripted-engine.js';
import { settled } from '../../virtual-clock.js';
import { acquire, clock, DEADLINE_MS, engine, held, locks, newForEachTest, Outcome, TTL_MS, until } from './kit.js';

newForEachTest();

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
    expect(acquiring.error).toBeInstanceOf(ClosedError);
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
