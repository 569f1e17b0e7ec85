/** Promises that stand or fall with an engine that answers late, never, or with what it should not. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { EngineSource } from '../../../src/core/engine.js';
import { memory } from '../../../src/engines/memory/index.js';
import { AcquireTimeoutError, EngineError, Holdfast, type Lease, LeaseLostError } from '../../../src/index.js';
import { lose } from '../../../src/testing/index.js';
import { type Hooks, hooked } from '../hooked-engine.js';
import { settled, VirtualClock } from '../virtual-clock.js';

const TTL_MS = 10_000;
const never = (): Promise<never> => new Promise(() => {});

let spaces = 0;

/** Instances of one memory, and what goes wrong between one of them and it. */
function stage(): { clock: VirtualClock; hooks: Hooks; locks: Holdfast; other: Holdfast; source: EngineSource } {
  spaces += 1;
  const clock = new VirtualClock();
  const source = memory(`odd-${spaces}`);
  const hooks: Hooks = {};
  const locks = new Holdfast(hooked(source, hooks), { clock, ttl: TTL_MS });
  const other = new Holdfast(source, { clock, ttl: TTL_MS });
  onTestFinished(async () => {
    for (const name of Object.keys(hooks) as (keyof Hooks)[]) delete hooks[name];
    const closed = Promise.all([locks.close({ drain: 0 }), other.close({ drain: 0 })]);
    await clock.advance(TTL_MS);
    await closed;
  });
  return { clock, hooks, locks, other, source };
}

async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    (value) => new Error(`it should have failed, and gave ${String(value)}`),
    (error: unknown) => error,
  );
}

describe('once notes no run that never begins', () => {
  test('because its Holdfast was closed meanwhile: the run is part of what may end', async () => {
    const { clock, hooks, locks, other } = stage();
    await locks.ready();
    let noted: (() => void) | undefined;
    hooks.write = (write) => new Promise((resolve) => (noted = () => resolve(write())));
    const ran = locks.once('nightly', { atLeast: '1h' }, () => 'done');
    await clock.advance(1);
    const closed = locks.close();
    await clock.advance(1);
    hooks.write = undefined;
    noted?.();
    expect(await ran).toEqual({ ran: true, value: 'done' });
    await closed;
    expect(await other.once('nightly', { atLeast: '1h' }, () => 'again')).toEqual({ ran: false });
  });

  test('because the answer to the note got lost', async () => {
    const { clock, hooks, locks, other } = stage();
    await locks.ready();
    hooks.write = (write) => {
      hooks.write = undefined;
      void write();
      return never();
    };
    const failure = failureOf(locks.once('nightly', { atLeast: '1h' }, () => 'done'));
    await clock.advance(TTL_MS);
    expect(await failure).toBeInstanceOf(EngineError);
    expect(await other.once('nightly', { atLeast: '1h' }, () => 'again')).toEqual({ ran: true, value: 'again' });
  });

  test('because the note came so late that it had been taken back', async () => {
    const { clock, hooks, locks, other } = stage();
    await locks.ready();
    hooks.write = (write) => {
      hooks.write = undefined;
      clock.timer(TTL_MS / 2, () => void write());
      return never();
    };
    const failure = failureOf(locks.once('nightly', { atLeast: '1h' }, () => 'done'));
    await clock.advance(TTL_MS);
    expect(await failure).toBeInstanceOf(EngineError);
    expect(await other.once('nightly', { atLeast: '1h' }, () => 'again')).toEqual({ ran: true, value: 'again' });
  });

  test('because atMost was over before it was noted', async () => {
    const { clock, hooks, locks, other } = stage();
    await locks.ready();
    hooks.write = async (write) => {
      hooks.write = undefined;
      await new Promise<void>((resolve) => void clock.timer(50, resolve));
      return write();
    };
    let began = false;
    const failure = failureOf(locks.once('nightly', { atLeast: '1h', atMost: 20 }, () => (began = true)));
    await clock.advance(100);
    expect(await failure).toMatchObject({ reason: 'maxHold' });
    expect(began).toBe(false);
    expect(await other.once('nightly', { atLeast: '1h' }, () => 'again')).toEqual({ ran: true, value: 'again' });
  });
});

describe('while the machine may have been suspended, and no beat has said more', () => {
  test('nobody comes inside a lock: not by run, not by a try, not by hand, and not after a sibling', async () => {
    const { clock, hooks, locks } = stage();
    const lock = locks.mutex('m');
    await lock.run(async (lease) => {
      const sibling = await lock.acquire();
      const behind = failureOf(lock.acquire());
      hooks.beat = never;
      clock.moveWall(60_000);
      expect(lease.held).toBe(false);
      await sibling.release();
      for (const entered of [
        behind,
        failureOf(lock.run(() => {})),
        failureOf(lock.tryAcquire()),
        failureOf(lock.acquire({ within: lease })),
      ])
        expect(await entered).toMatchObject({ code: 'HOLDFAST_LOST', reason: 'expired' });
    });
  });

  test('whoever comes in that very moment leaves nothing inside, and the lock is given back', async () => {
    const { clock, locks, other } = stage();
    const { wall } = clock;
    const lock = locks.mutex('m');
    const ran = lock.run(async () => {
      let reads = 0;
      clock.wall = () => wall() + (reads++ === 0 ? 0 : 60_000);
      const entered = failureOf(lock.acquire());
      clock.wall = wall;
      expect(await entered).toMatchObject({ reason: 'expired' });
    });
    const next = other.mutex('m').acquire();
    await clock.advance(100);
    await ran;
    expect((await next).held).toBe(true);
  });

  test('a writer that is downgraded is a reader once a beat has said so, and is not called lost', async () => {
    const { clock, hooks, locks, other } = stage();
    const writer = await locks.rwLock('r').write.acquire();
    hooks.beat = never;
    clock.moveWall(60_000);
    const reader = await writer.downgrade();
    expect(reader.held).toBe(false);
    hooks.beat = undefined;
    await clock.advance(TTL_MS / 2);
    expect(reader.held).toBe(true);
    await reader.release();
    expect((await other.rwLock('r').write.tryAcquire())?.held).toBe(true);
  });
});

describe('busy, or not to be asked', () => {
  test('a waiter that came after the last sign of the engine is told that the engine is silent', async () => {
    const { clock, hooks, locks, other } = stage();
    await other.mutex('a').acquire();
    const first = failureOf(locks.mutex('a').acquire({ timeout: '2s' }));
    await clock.advance(100);
    hooks.enter = never;
    hooks.beat = never;
    hooks.inspect = () => silentListing();
    const second = failureOf(locks.mutex('a').acquire({ timeout: 300 }));
    await clock.advance(400);
    expect(await second).toBeInstanceOf(EngineError);
    await clock.advance(2_000);
    // It was answered: its claim stands in line.
    expect(await first).toBeInstanceOf(AcquireTimeoutError);
  });

  test('a waiter behind a lock of its own process is told that it is busy, though the engine is silent', async () => {
    const { clock, hooks, locks } = stage();
    await locks.mutex('a').acquire();
    hooks.enter = never;
    hooks.inspect = () => silentListing();
    const waiting = failureOf(locks.mutex('a').acquire({ timeout: 300 }));
    await clock.advance(400);
    expect(await waiting).toBeInstanceOf(AcquireTimeoutError);
  });

  test('a crowd inside a lock whose time is over in one moment costs one listing', async () => {
    let listings = 0;
    const source = memory(`odd-${(spaces += 1)}`);
    await using locks = new Holdfast(hooked(source, { inspect: (inspect) => ((listings += 1), inspect()) }));
    await locks.mutex('a').run(async () => {
      await using _ = await locks.mutex('a').acquire();
      const waiting = Array.from({ length: 500 }, () => failureOf(locks.mutex('a').acquire({ timeout: 50 })));
      for (const error of await Promise.all(waiting)) expect(error).toMatchObject({ heldHere: true });
    });
    // Their timers may run in a few rounds.
    expect(listings).toBeLessThan(50);
  });

  test('whoever waits inside a lock in vain is told that this very process has it', async () => {
    const { clock, locks } = stage();
    await locks.mutex('a').run(async () => {
      const inner = await locks.mutex('a').acquire();
      const waiting = failureOf(locks.mutex('a').acquire({ timeout: 20 }));
      await clock.advance(100);
      const error = (await waiting) as AcquireTimeoutError;
      expect(error).toMatchObject({ timeoutMs: 20, heldHere: true, place: 1 });
      expect(error.holder?.label).toContain(`:${process.pid}`);
      await inner.release();
    });
  });
});

describe('several locks as one', () => {
  test('maxHold counts from when all of them are held', async () => {
    const { clock, locks, other } = stage();
    const inTheWay = await other.mutex('b').acquire();
    const gathered = locks.all([locks.mutex('a'), locks.mutex('b')]).acquire({ maxHold: 300 });
    await clock.advance(500);
    expect(await other.mutex('a').tryAcquire()).toBeUndefined();
    await inTheWay.release();
    const leases = await gathered;
    expect(leases.remaining).toBe(300);
    await clock.advance(301);
    expect(leases.held).toBe(false);
  });

  test('one that is lost while the next is waited for ends the wait', async () => {
    const { clock, locks, other } = stage();
    await other.mutex('b').acquire();
    const failure = failureOf(locks.all([locks.mutex('a'), locks.mutex('b')]).acquire());
    await clock.advance(10);
    const [claim] = (await other.mutex('a').inspect()).claims;
    expect(await other.evict('a', claim!.id, 'enough')).toBe(true);
    await clock.advance(10);
    expect(await failure).toMatchObject({ lock: 'a', reason: 'evicted' });
    expect((await other.mutex('b').inspect()).claims).toHaveLength(1);
    expect((await other.mutex('a').inspect()).claims).toEqual([]);
  });
});

describe('a leader', () => {
  test('that has resigned leads no more, and its error is passed on', async () => {
    const { locks } = stage();
    let terms = 0;
    const leading = locks.election('e').lead(async (term) => {
      terms += 1;
      await term.release();
      term.assertHeld();
    });
    expect(await failureOf(leading)).toBeInstanceOf(LeaseLostError);
    expect(terms).toBe(1);
  });
});

describe('a lease inside one that was given back', () => {
  test('counts as held', async () => {
    const { locks } = stage();
    const inner = await kept(locks);
    expect([inner.held, locks.stats().held]).toEqual([true, 1]);
    await inner.release();
    expect(locks.stats().held).toBe(0);
  });

  test('is told as lost, once', async () => {
    const { clock, locks } = stage();
    const told: unknown[] = [];
    const hear = (message: unknown): void => void told.push(message);
    subscribe('holdfast:lost', hear);
    onTestFinished(() => void unsubscribe('holdfast:lost', hear));
    const inner = await kept(locks);
    const [claim] = (await locks.mutex('z').inspect()).claims;
    await locks.evict('z', claim!.id, 'enough');
    await clock.advance(10);
    expect(inner.state).toBe('lost');
    expect(told).toEqual([expect.objectContaining({ name: 'z', token: inner.token })]);
  });
});

describe('what an evicted holder has not stopped yet', () => {
  test('is waited for by a Holdfast that closes, within its bound', async () => {
    for (const ends of ['stopped', 'drained'] as const) {
      const { clock, locks, other } = stage();
      const lease = await locks.mutex('m').acquire();
      let stop!: () => void;
      lease.onEvicted(() => new Promise<void>((resolve) => (stop = resolve)));
      const granted = await evicted(clock, other, 'm');
      const closed = locks.close({ drain: 1_000 });
      await clock.advance(900);
      expect(granted()).toBe(false);
      if (ends === 'stopped') stop();
      await clock.advance(ends === 'stopped' ? 1 : 200);
      await closed;
      expect(granted()).toBe(true);
    }
  });

  test('may close it', async () => {
    const { clock, locks, other } = stage();
    const lease = await locks.mutex('m').acquire();
    lease.onEvicted(() => locks.close());
    expect((await evicted(clock, other, 'm'))()).toBe(true);
  });

  test('is not waited for by the function that it stops, which closes it', async () => {
    const { clock, locks, other } = stage();
    const run = failureOf(
      locks.mutex('m').run(async (lease) => {
        const work = (async () => {
          await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
          await settled();
          await locks.close();
        })();
        lease.onEvicted(() => work);
        await work;
      }),
    );
    await clock.advance(1);
    expect((await evicted(clock, other, 'm'))()).toBe(true);
    expect(await run).toMatchObject({ reason: 'evicted' });
  });

  test('is waited for though its leader has been told to go', async () => {
    const { clock, locks, other } = stage();
    let stop: (() => void) | undefined;
    const lead = locks.election('e').lead(async (term) => {
      term.onEvicted(() => new Promise<void>((resolve) => (stop = resolve)));
      await new Promise<void>((resolve) => void clock.timer(TTL_MS / 2, resolve));
    });
    await clock.advance(1);
    const closed = Promise.allSettled([lead, locks.close()]);
    const granted = await evicted(clock, other, 'e');
    expect(stop).toBeDefined();
    expect(granted()).toBe(false);
    stop?.();
    await clock.advance(1);
    expect(granted()).toBe(true);
    await clock.advance(TTL_MS);
    await closed;
  });
});

test('each of those who wait inside a lock that is lost has an error of its own, with its own frames', async () => {
  const { clock, locks } = stage();
  const lock = locks.mutex('m');
  const outer = await lock.acquire();
  await lock.acquire({ within: outer });
  const inside = { within: outer, timeout: 1_000 };
  const first = function first(): Promise<unknown> {
    return failureOf(lock.acquire(inside));
  };
  const second = function second(): Promise<unknown> {
    return failureOf(lock.acquire(inside));
  };
  const failures = [first(), second()];
  lose(outer);
  await clock.advance(1);
  const stacks = (await Promise.all(failures)).map((error) => (error as Error).stack);
  expect(stacks).toEqual([expect.stringContaining('at first'), expect.stringContaining('at second')]);
});

test('a loss while a downgrade waits for the engine rejects it at once, and the writer was lost', async () => {
  const { hooks, locks } = stage();
  hooks.reweigh = never;
  const writer = await locks.rwLock('r').write.acquire();
  const downgraded = failureOf(writer.downgrade());
  await settled();
  lose(writer);
  expect(await downgraded).toBeInstanceOf(LeaseLostError);
  expect(await writer.release()).toBe(false);
});

describe('an engine that breaks its own rules', () => {
  test.each(['refused', 'nothing', 'nonsense'] as const)(
    'answers an enter with %s: an EngineError, and no loop',
    async (how) => {
      const { hooks, locks } = stage();
      let asked = 0;
      hooks.enter = () => {
        asked += 1;
        return Promise.resolve({ refused: { state: 'refused' }, nothing: undefined, nonsense: 7 }[how]);
      };
      expect(await failureOf(locks.mutex('a').acquire({ timeout: 200 }))).toBeInstanceOf(EngineError);
      expect(asked).toBe(1);
    },
  );

  test('answers without a promise: nobody is worse off', async () => {
    const { hooks, locks } = stage();
    const lease = await locks.mutex('a').acquire();
    hooks.leave = () => true;
    expect(await lease.release()).toBe(true);
  });

  test('answers a beat with nothing: that is a beat that failed', async () => {
    const { clock, hooks, locks } = stage();
    hooks.beat = () => Promise.resolve(undefined);
    const lease = await locks.mutex('a').acquire();
    await clock.advance(TTL_MS / 2);
    expect(lease.state).toBe('jeopardy');
    hooks.beat = undefined;
    await clock.advance(TTL_MS / 3);
    expect(lease.state).toBe('held');
  });
});

test('no session is opened on behalf of an instance that was closed while it connected', async () => {
  spaces += 1;
  const clock = new VirtualClock();
  const source = memory(`odd-${spaces}`);
  let connect: (() => void) | undefined;
  let opened = 0;
  const late: EngineSource = {
    ...hooked(source, { open: (open) => ((opened += 1), open()) }),
  };
  const locks = new Holdfast(
    { ...late, connect: (setup) => new Promise((resolve) => (connect = () => resolve(late.connect(setup)))) },
    { clock },
  );
  const failure = failureOf(locks.mutex('a').acquire());
  await settled();
  await locks.close({ drain: 0 });
  connect?.();
  await clock.advance(100);
  expect(await failure).toMatchObject({ code: 'HOLDFAST_CLOSED' });
  expect(opened).toBe(0);
});

/** A lease inside one that was given back. */
async function kept(locks: Holdfast): Promise<Lease> {
  const outer = await locks.mutex('z').acquire();
  const inner = await locks.mutex('z').acquire({ within: outer });
  await outer.release();
  return inner;
}

function silentListing(): AsyncIterable<never> {
  return { [Symbol.asyncIterator]: () => ({ next: never }) };
}

/** Another waits for what this lease holds. Tells whether it has it. */
async function evicted(clock: VirtualClock, other: Holdfast, name: string): Promise<() => boolean> {
  let granted = false;
  void other
    .mutex(name)
    .acquire()
    .then(() => (granted = true));
  await clock.advance(10);
  const [claim] = (await other.mutex(name).inspect()).claims;
  await other.evict(name, claim!.id, 'enough');
  await clock.advance(10);
  return () => granted;
}
