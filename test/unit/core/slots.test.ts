/** A session on slots: what is late, lost or twice on the way to a system that has nothing but one slot per name. */
import { beforeEach, describe, expect, test } from 'vitest';
import type { Claim, Roster } from '../../../src/core/engine.js';
import { ALL } from '../../../src/core/line.js';
import { SlotSession } from '../../../src/core/slots.js';
import { never, Pending } from '../scripted-engine.js';
import { ScriptedSlots } from '../scripted-slots.js';
import { settled, VirtualClock } from '../virtual-clock.js';

const TTL_MS = 9_000;
const BEAT_MS = TTL_MS / 3;
const NAME = 'job';

let clock: VirtualClock;
let store: ScriptedSlots;
let session: SlotSession;
/** What the session told unasked: 'granted a', 'lost a'. */
let told: string[];

beforeEach(() => {
  clock = new VirtualClock();
  store = new ScriptedSlots(clock, TTL_MS);
  told = [];
  session = new SlotSession({
    options: { id: 'session', realm: '', ttlMs: TTL_MS, label: 'test' },
    listener: {
      granted: (id) => void told.push(`granted ${id}`),
      lost: (id) => void told.push(`lost ${id}`),
      ended: () => void told.push('ended'),
    },
    clock,
    store: (lost) => Object.assign(store, { lost }),
  });
});

let serial = 0;

function claimOf(id: string, changes: Partial<Claim> = {}): Claim {
  serial += 1;
  const line = { kind: 'lock', name: NAME } as const;
  return { id, line, serial, weight: ALL, capacity: ALL, wait: true, note: '', ...changes };
}

/** What the core would say with a beat. */
function rosterOf(held: readonly Claim[], waiting: readonly Claim[] = [], unsettled: readonly Claim[] = []): Roster {
  const standing = [...held, ...waiting];
  return {
    count: standing.length,
    held: held.length,
    checksum: standing.reduce((sum, { serial }) => sum + serial, 0) >>> 0,
    unsettled: unsettled.map(({ id }) => id),
  };
}

/** The store does what is asked at once, and answers calls that begin like this when the gate opens. */
function answerLate(beginning: string): Pending<void> {
  const gate = new Pending<void>();
  store.network = async (call, run) => {
    const answer = run();
    if (call.startsWith(beginning)) await gate.promise;
    return answer;
  };
  return gate;
}

/** Calls that begin like this get to the store when the gate opens. */
function deliverLate(beginning: string): Pending<void> {
  const gate = new Pending<void>();
  store.network = async (call, run) => {
    if (call.startsWith(beginning)) await gate.promise;
    return run();
  };
  return gate;
}

function heal(): void {
  store.network = async (_, run) => run();
}

async function hold(claim: Claim): Promise<void> {
  expect(await session.enter(claim)).toMatchObject({ state: 'held' });
}

describe('a take', () => {
  test('of a free slot is one call, and another enter of the claim gives the same answer', async () => {
    const claim = claimOf('a');
    const first = await session.enter(claim);
    expect(first).toEqual({ state: 'held', token: 1n });
    expect(await session.enter(claim)).toEqual(first);
    expect(store.calls).toEqual(['take a']);
  });

  test('two enters of one claim that are under way at once give one grant', async () => {
    const gate = answerLate('take');
    const claim = claimOf('a');
    const places = [session.enter(claim), session.enter(claim)];
    await settled();
    gate.resolve();
    expect(await Promise.all(places)).toEqual([
      { state: 'held', token: 1n },
      { state: 'held', token: 1n },
    ]);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
    expect(told).toEqual([]);
  });

  test('one enter found it busy and the other got it: the claim holds and asks no more', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    const gate = new Pending<void>();
    let takes = 0;
    store.network = async (call, run) => {
      if (call.startsWith('take')) takes += 1;
      if (call.startsWith('take') && takes === 2) await gate.promise;
      return run();
    };
    const [first, second] = [session.enter(claim), session.enter(claim)];
    expect(await first).toEqual({ state: 'waiting' });
    await settled();
    store.free(NAME);
    gate.resolve();
    expect(await second).toMatchObject({ state: 'held' });
    const before = store.sent('take').length;
    await clock.advance(BEAT_MS);
    expect(store.sent('take')).toHaveLength(before);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
  });

  test('that a beat has overtaken is renewed before it is granted', async () => {
    const gate = answerLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    await clock.advance(1_000);
    gate.resolve();
    expect(await place).toMatchObject({ state: 'held' });
    expect(store.calls).toEqual(['take a', 'keep a']);
    // The core believes in it for one ttl from the beat on.
    expect(store.until(NAME, 'a')).toBeGreaterThanOrEqual(BEAT_MS + TTL_MS);
  });

  test('is renewed again when a beat overtakes the renewal, too', async () => {
    const takeGate = answerLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    const keepGate = answerLate('keep');
    takeGate.resolve();
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    keepGate.resolve();
    expect(await place).toMatchObject({ state: 'held' });
    expect(store.calls).toEqual(['take a', 'keep a', 'keep a']);
    expect(store.until(NAME, 'a')).toBeGreaterThanOrEqual(2 * BEAT_MS + TTL_MS);
  });

  test('that a beat has overtaken and whose slot is gone by then is no grant', async () => {
    const gate = answerLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    await clock.advance(BEAT_MS);
    await session.beat(rosterOf([], [], [claim]));
    store.free(NAME, 'a');
    store.occupy(NAME);
    gate.resolve();
    expect(await place).toEqual({ state: 'waiting' });
    expect(store.holders(NAME)).toEqual(['somebody else']);
  });

  test('of one who waited is renewed as well', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    expect(await session.enter(claim)).toEqual({ state: 'waiting' });
    await settled();
    store.free(NAME);
    const gate = answerLate('take');
    store.hint();
    await session.beat(rosterOf([], [claim]));
    gate.resolve();
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.calls.slice(-2)).toEqual(['take a', 'keep a']);
  });

  test('that gets there after its leave is dropped', async () => {
    const gate = deliverLate('take');
    const claim = claimOf('a');
    const place = session.enter(claim);
    expect(await session.leave(claim)).toBe(true);
    gate.resolve();
    expect((await place).state).not.toBe('held');
    await settled();
    expect(store.holders(NAME)).toEqual([]);
    expect(told).toEqual([]);
  });

  test('of one who waited and has left is dropped, and granted to nobody', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    await session.enter(claim);
    await settled();
    store.free(NAME);
    const gate = deliverLate('take');
    store.hint();
    expect(await session.leave(claim)).toBe(true);
    gate.resolve();
    await settled();
    expect(store.holders(NAME)).toEqual([]);
    expect(told).toEqual([]);
  });

  test('whose answer is an error after its leave is dropped', async () => {
    const gate = new Pending<void>();
    store.network = async (call, run) => {
      if (!call.startsWith('take')) return run();
      await gate.promise;
      run();
      throw new Error('lost');
    };
    const claim = claimOf('a');
    const place = session.enter(claim).catch((error: unknown) => (error as Error).message);
    await session.leave(claim);
    gate.resolve();
    expect(await place).toBe('lost');
    await settled();
    expect(store.holders(NAME)).toEqual([]);
  });

  test('whose answer is an error rejects, and is answered when it is asked again', async () => {
    store.network = async (_, run) => {
      run();
      throw new Error('lost');
    };
    const claim = claimOf('a');
    await expect(session.enter(claim)).rejects.toThrow('lost');
    heal();
    expect(await session.enter(claim)).toEqual({ state: 'held', token: 1n });
    expect(await session.leave(claim)).toBe(true);
  });
});

describe('one who waits', () => {
  test('is granted in the order in which our claims came', async () => {
    const [first, second, third] = [claimOf('a'), claimOf('b'), claimOf('c')];
    await hold(first);
    expect(await session.enter(second)).toEqual({ state: 'waiting' });
    expect(await session.enter(third)).toEqual({ state: 'waiting' });
    expect(store.sent('take')).toEqual(['take a']);
    expect(await session.leave(first)).toBe(true);
    await settled();
    expect(told).toEqual(['granted b']);
    expect(await session.leave(second)).toBe(true);
    await settled();
    expect(told).toEqual(['granted b', 'granted c']);
    // The next asks when the slot is free: each of them had to ask once.
    expect(store.sent('take')).toEqual(['take a', 'take b', 'take c']);
  });

  test('asks only after the drop before it was answered', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    const gate = deliverLate('drop');
    const left = session.leave(first);
    await settled();
    expect(store.sent('take b')).toEqual([]);
    gate.resolve();
    expect(await left).toBe(true);
    await settled();
    expect(told).toEqual(['granted b']);
  });

  test('asks although the drop before it is never answered', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    store.network = (call, run) => {
      const answer = run();
      return call.startsWith('drop') ? never() : Promise.resolve(answer);
    };
    void session.leave(first);
    await clock.advance(TTL_MS);
    expect(told).toEqual(['granted b']);
  });

  test('who leaves first makes way, and nobody asks for it any more', async () => {
    const [first, second, third] = [claimOf('a'), claimOf('b'), claimOf('c')];
    await hold(first);
    await session.enter(second);
    await session.enter(third);
    expect(await session.leave(second)).toBe(true);
    expect(await session.leave(second)).toBe(false);
    await session.leave(first);
    await settled();
    expect(told).toEqual(['granted c']);
    expect(store.sent('take b')).toEqual([]);
  });

  test('who leaves has left at once, also while its drop is under way; the next one asks after that', async () => {
    store.occupy(NAME);
    const [first, second] = [claimOf('a'), claimOf('b')];
    await session.enter(first);
    await settled();
    const gate = deliverLate('drop');
    expect(await session.leave(first)).toBe(true);
    store.free(NAME);
    const entered = session.enter(second);
    await settled();
    expect(store.sent('take b')).toHaveLength(0);
    gate.resolve();
    expect(await entered).toMatchObject({ state: 'held' });
  });

  test('asks at once when told, and again when told while it asked', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    await settled();
    const gate = answerLate('take');
    store.hint();
    const asked = store.sent('take').length;
    store.free(NAME);
    store.hint();
    expect(store.sent('take')).toHaveLength(asked);
    gate.resolve();
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.sent('take')).toHaveLength(asked + 1);
    expect(clock.now()).toBe(0);
  });

  test('asks again as soon as it listens: it may have been freed before', async () => {
    store.occupy(NAME);
    const gate = deliverLate('watch');
    await session.enter(claimOf('a'));
    await settled();
    store.free(NAME);
    gate.resolve();
    await settled();
    expect(told).toEqual(['granted a']);
    expect(clock.now()).toBe(0);
  });

  test('is served although no hint comes, and asks no faster than the pace', async () => {
    store.occupy(NAME);
    store.network = (call, run) =>
      call.startsWith('watch') ? Promise.reject(new Error('no rights')) : Promise.resolve(run());
    await session.enter(claimOf('a'));
    await clock.advance(60_000);
    // With the jitter of this clock a pause is 3/4 of 1,000 ms, but for the first few.
    expect(store.sent('take').length).toBeLessThan(60_000 / 750 + 10);
    store.free(NAME);
    await clock.advance(store.pace.mostMs);
    expect(told).toEqual(['granted a']);
  });

  test('asks when the slot runs out, if that is sooner', async () => {
    const other = new SlotSession({
      options: { id: 'other', realm: '', ttlMs: TTL_MS, label: 'other' },
      listener: { granted: () => {}, lost: () => {}, ended: () => {} },
      clock,
      store: () => store,
    });
    await other.enter(claimOf('z'));
    const claim = claimOf('a');
    await session.enter(claim);
    await clock.advance(TTL_MS - 1_000);
    await session.beat(rosterOf([], [claim]));
    expect(told).toEqual([]);
    await clock.advance(1_000 + 1 + store.pace.firstMs);
    expect(told).toEqual(['granted a']);
  });

  test('goes on asking although an answer never comes', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    await settled();
    store.network = () => never();
    store.hint();
    await settled();
    heal();
    store.free(NAME);
    await clock.advance(BEAT_MS + store.pace.mostMs);
    expect(told).toEqual(['granted a']);
  });

  test('goes on asking after an error', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    store.network = () => Promise.reject(new Error('no connection'));
    await clock.advance(2_000);
    heal();
    store.free(NAME);
    await clock.advance(store.pace.mostMs);
    expect(told).toEqual(['granted a']);
  });

  test('whose answer comes late is granted once', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    await session.enter(claim);
    await settled();
    store.free(NAME);
    const gate = answerLate('take');
    store.hint();
    await clock.advance(BEAT_MS + store.pace.mostMs);
    expect(store.sent('take').length).toBeGreaterThan(3);
    gate.resolve();
    await settled();
    const asked = store.sent('take').length;
    await clock.advance(TTL_MS - 1 - clock.now());
    expect(told).toEqual(['granted a']);
    expect(store.sent('take')).toHaveLength(asked);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
  });
});

describe('a drop that fails', () => {
  test('is tried again with the next beats, until one is answered', async () => {
    const claim = claimOf('a');
    await hold(claim);
    store.network = () => Promise.reject(new Error('no connection'));
    await expect(session.leave(claim)).rejects.toThrow('no connection');
    await session.beat(rosterOf([]));
    heal();
    expect(store.holders(NAME)).toEqual(['a']);
    await session.beat(rosterOf([]));
    await settled();
    expect(store.holders(NAME)).toEqual([]);
    await session.beat(rosterOf([]));
    expect(store.sent('drop')).toHaveLength(3);
  });

  test('is tried again, too, if it is of a take that came after its leave', async () => {
    const claim = claimOf('a');
    const gate = new Pending<void>();
    store.network = async (call, run) => {
      if (!call.startsWith('take')) return run();
      await gate.promise;
      store.network = () => Promise.reject(new Error('no connection'));
      return run();
    };
    const place = session.enter(claim);
    expect(await session.leave(claim)).toBe(true);
    gate.resolve();
    expect((await place).state).not.toBe('held');
    await settled();
    expect(store.holders(NAME)).toEqual(['a']);
    heal();
    await session.beat(rosterOf([]));
    await settled();
    expect(store.holders(NAME)).toEqual([]);
  });

  test('is given up when the slot has run out', async () => {
    const claim = claimOf('a');
    await hold(claim);
    store.network = () => Promise.reject(new Error('no connection'));
    await expect(session.leave(claim)).rejects.toThrow('no connection');
    for (let beat = 0; beat < 4; beat += 1) {
      await clock.advance(BEAT_MS);
      await session.beat(rosterOf([]));
    }
    expect(store.sent('drop')).toHaveLength(3);
  });

  test('does not keep the next of us from asking', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    store.network = (call, run) =>
      call.startsWith('drop') ? Promise.reject(new Error('no connection')) : Promise.resolve(run());
    await expect(session.leave(first)).rejects.toThrow('no connection');
    await clock.advance(TTL_MS - 1);
    await session.beat(rosterOf([], [second]));
    await clock.advance(1 + 1 + store.pace.firstMs);
    expect(told).toEqual(['granted b']);
  });
});

describe('one who only tries', () => {
  test('is refused here while one of us stands in line, without a call', async () => {
    await hold(claimOf('a'));
    expect(await session.enter(trying('b'))).toEqual({ state: 'refused' });
    expect(store.calls).toEqual(['take a']);
  });

  test('is refused there with one call, and nothing is left of it', async () => {
    store.occupy(NAME);
    const claim = trying('a');
    expect(await session.enter(claim)).toEqual({ state: 'refused' });
    expect(await session.leave(claim)).toBe(false);
    expect(store.calls).toEqual(['take a']);
    expect(await session.beat(rosterOf([]))).toEqual({ alive: true });
    store.free(NAME);
    await hold(claimOf('b'));
  });
});

describe('a beat', () => {
  test('renews all that is held with one call', async () => {
    const claims = ['a', 'b', 'c'].map((id) => claimOf(id, { line: { kind: 'lock', name: id } }));
    for (const claim of claims) await hold(claim);
    await clock.advance(BEAT_MS);
    expect(await session.beat(rosterOf(claims))).toEqual({ alive: true });
    expect(store.sent('keep')).toEqual(['keep a,b,c']);
    expect(store.until('c', 'c')).toBe(BEAT_MS + TTL_MS);
  });

  test('tells what was lost, and who is next of us asks', async () => {
    const [first, second] = [claimOf('a'), claimOf('b')];
    await hold(first);
    await session.enter(second);
    store.free(NAME, 'a');
    await session.beat(rosterOf([first], [second]));
    await settled();
    expect(told).toEqual(['lost a', 'granted b']);
    expect(await session.leave(first)).toBe(false);
    expect(store.holders(NAME)).toEqual(['b']);
  });

  test('that fails loses nothing', async () => {
    const claim = claimOf('a');
    await hold(claim);
    store.network = () => Promise.reject(new Error('no connection'));
    await expect(session.beat(rosterOf([claim]))).rejects.toThrow('no connection');
    heal();
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: true });
    expect(told).toEqual([]);
  });

  test('answers the index where the core believes something else', async () => {
    const [held, waiting] = [claimOf('a'), claimOf('b')];
    await hold(held);
    await session.enter(waiting);
    expect(await session.beat(rosterOf([held], [waiting]))).toEqual({ alive: true });
    const index = [
      { id: 'a', line: held.line, state: 'held', token: 1n },
      { id: 'b', line: held.line, state: 'waiting', token: undefined },
    ];
    for (const wrong of [rosterOf([held]), rosterOf([held, waiting]), rosterOf([], [held, waiting])])
      expect(await session.beat(wrong)).toEqual({ alive: true, index });
    expect(await session.beat(rosterOf([held], [], [waiting]))).toEqual({ alive: true });
  });

  test('that comes after one ttl without any finds the session dead, and nobody can enter it', async () => {
    const claim = claimOf('a');
    await hold(claim);
    clock.stall(TTL_MS);
    expect(await session.beat(rosterOf([claim]))).toEqual({ alive: false });
    expect(await session.enter(claimOf('b'))).toEqual({ state: 'gone' });
  });

  test('that is answered after a later one takes nothing back', async () => {
    const claim = claimOf('a');
    await hold(claim);
    const gate = answerLate('keep');
    const early = session.beat(rosterOf([claim]));
    await clock.advance(BEAT_MS);
    heal();
    await session.beat(rosterOf([claim]));
    gate.resolve();
    await early;
    await clock.advance(TTL_MS - 1);
    expect(await session.beat(rosterOf([claim]))).toMatchObject({ alive: true });
  });
});

test('a loss that the store notices by itself is told, and who is next of us asks', async () => {
  const [first, second] = [claimOf('a'), claimOf('b')];
  await hold(first);
  await session.enter(second);
  store.free(NAME, 'a');
  store.lost('a', { reason: 'session' });
  await settled();
  expect(told).toEqual(['lost a', 'granted b']);
  store.lost('a', { reason: 'session' });
  expect(told).toHaveLength(2);
});

describe('close', () => {
  test('drops what is held, and what is on its way when it arrives', async () => {
    await hold(claimOf('a'));
    const gate = deliverLate('take');
    const entering = session.enter(claimOf('b', { line: { kind: 'lock', name: 'other' } }));
    await settled();
    await session.close();
    expect(store.holders(NAME)).toEqual([]);
    gate.resolve();
    expect((await entering).state).not.toBe('held');
    await settled();
    expect(store.holders('other')).toEqual([]);
    expect(store.closed).toBe(1);
    expect(told).toEqual([]);
  });

  test('ends the asking and the watches', async () => {
    store.occupy(NAME);
    await session.enter(claimOf('a'));
    await settled();
    expect(store.watches).toBe(1);
    await session.close();
    expect(store.watches).toBe(0);
    const before = store.calls.length;
    await clock.advance(TTL_MS);
    expect(store.calls).toHaveLength(before);
  });

  test('is for ever: a beat that is answered after it revives nothing', async () => {
    const claim = claimOf('a');
    await hold(claim);
    const gate = answerLate('keep');
    const beat = session.beat(rosterOf([claim]));
    await session.close();
    gate.resolve();
    await beat;
    expect(await session.enter(claimOf('b'))).toEqual({ state: 'gone' });
  });
});

describe('shared slots', () => {
  test('are asked for by all that fit, and by a writer when they have left', async () => {
    const [one, two] = [reading('a'), reading('b')];
    await hold(one);
    await hold(two);
    const writer = claimOf('w');
    expect(await session.enter(writer)).toEqual({ state: 'waiting' });
    // Not past the writer.
    expect(await session.enter(claimOf('c', { weight: 1, wait: false }))).toEqual({ state: 'refused' });
    await session.leave(one);
    await settled();
    expect(told).toEqual([]);
    await session.leave(two);
    await settled();
    expect(told).toEqual(['granted w']);
  });

  test('one who becomes lighter lets those in who fit now', async () => {
    const writer = claimOf('w');
    await hold(writer);
    await session.enter(reading('a'));
    await session.reweigh({ ...writer, weight: 1 });
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.holders(NAME)).toEqual(['w', 'a']);
  });
});

describe('a watch', () => {
  test('outlives its waiter a little, for the next one, and is opened anew after that', async () => {
    await waitAndBeServed('a');
    await session.beat(rosterOf([]));
    expect(store.watches).toBe(1);
    await waitAndBeServed('b');
    expect(store.sent('watch')).toHaveLength(1);
    for (let beat = 0; beat < 2; beat += 1) await session.beat(rosterOf([]));
    expect(store.watches).toBe(1);
    await session.beat(rosterOf([]));
    await settled();
    expect(store.watches).toBe(0);
    await waitAndBeServed('c');
    expect(store.sent('watch')).toHaveLength(2);
  });

  test('stays while somebody waits', async () => {
    store.occupy(NAME);
    const claim = claimOf('a');
    await session.enter(claim);
    for (let beat = 0; beat < 10; beat += 1) await session.beat(rosterOf([], [claim]));
    expect(store.watches).toBe(1);
  });

  describe('that fails after it was given up', () => {
    test('disturbs no other one of the line', async () => {
      const [first, second] = [claimOf('a'), claimOf('b')];
      const gate = await giveUpWatch(first);
      await session.enter(second);
      await session.leave(first);
      await failsUnnoticed(gate);
    });

    test('disturbs no line of that name that was begun anew', async () => {
      const first = claimOf('a');
      const gate = await giveUpWatch(first);
      await session.leave(first);
      // The old line is forgotten.
      await settled();
      store.occupy(NAME);
      await session.enter(claimOf('b'));
      await failsUnnoticed(gate);
    });
  });
});

function trying(id: string): Claim {
  return claimOf(id, { wait: false });
}

function reading(id: string): Claim {
  return claimOf(id, { weight: 1 });
}

async function waitAndBeServed(id: string): Promise<void> {
  store.occupy(NAME);
  const claim = claimOf(id);
  expect(await session.enter(claim)).toEqual({ state: 'waiting' });
  await settled();
  store.free(NAME);
  store.hint();
  await settled();
  expect(told.at(-1)).toBe(`granted ${id}`);
  expect(await session.leave(claim)).toBe(true);
}

/** One is waiting for its watch, and is served by asking; the watch is given up before it was opened. */
async function giveUpWatch(first: Claim): Promise<Pending<void>> {
  const gate = deliverLate('watch');
  store.occupy(NAME);
  await session.enter(first);
  store.free(NAME);
  await clock.advance(store.pace.mostMs);
  expect(told).toEqual([`granted ${first.id}`]);
  for (let beat = 0; beat < 3; beat += 1) await session.beat(rosterOf([first]));
  heal();
  return gate;
}

async function failsUnnoticed(gate: Pending<void>): Promise<void> {
  await settled();
  expect(store.watches).toBe(1);
  gate.reject(new Error('no rights'));
  await settled();
  await session.close();
  expect(store.watches).toBe(0);
}
