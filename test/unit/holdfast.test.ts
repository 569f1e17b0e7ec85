import { afterAll, describe, expect, test } from 'vitest';
import type { EngineSource, Traits } from '../../src/core/engine.js';
import { ClosedError, ConfigError, UnsupportedError } from '../../src/core/errors.js';
import { traits as memoryTraits } from '../../src/engines/memory/traits.js';
import { Holdfast, type HoldfastOptions } from '../../src/index.js';
import type { Lease, WriteLease } from '../../src/locks/lease.js';
import type { AcquireOptions } from '../../src/locks/lock.js';
import { ScriptedEngine } from './scripted-engine.js';
import { settled, VirtualClock } from './virtual-clock.js';

const locks = new Holdfast('memory:holdfast-test', { label: 'app' });
const stranger = new Holdfast('memory:holdfast-test', { label: 'stranger' });

afterAll(async () => {
  await locks.close();
  await stranger.close();
});

/** Wrong on purpose: what a caller without types, or with a cast, may pass. */
const wrong = (value: unknown): never => value as never;

function expectClosed(thrown: unknown): void {
  expect(thrown).toBeInstanceOf(ClosedError);
}

function expectConfigError(thrown: unknown, message: RegExp): void {
  expect(thrown).toBeInstanceOf(ConfigError);
  expect((thrown as Error).message).toMatch(message);
}

/** What a call throws. It must throw at once, not later. */
function thrownBy(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error('It should have thrown.');
}

/** What a call rejects with. It must not throw instead: a caller with `.catch` would miss it. */
async function rejectionOf(call: () => Promise<unknown>): Promise<unknown> {
  const promise = call();
  return promise.then(
    (value) => {
      throw new Error(`It should have rejected; it gave ${String(value)}.`);
    },
    (error: unknown) => error,
  );
}

describe('a Holdfast', () => {
  test.each([[undefined], [null], [42], [{}], [[]], [() => undefined], [{ traits: memoryTraits }]])(
    'is not made of %o',
    (engine) => {
      const thrown = thrownBy(() => new Holdfast(wrong(engine)));
      expectConfigError(thrown, /needs an engine: a URL like 'memory:', .* got /);
    },
  );

  test.each<[keyof HoldfastOptions, unknown, RegExp]>([
    ['ttl', 999, /^ttl must be from 1000 ms to 10 min .* got 999 ms/],
    ['ttl', '601s', /^ttl must be from .* got 601000 ms/],
    ['ttl', 'soon', /^ttl must be a duration .* got "soon"/],
    ['ttl', -1, /^ttl must be a duration/],
    ['label', '', /^label must have 1 to 512 bytes/],
    ['label', 'a\nb', /^label must not contain control characters/],
    ['label', 42, /^label must be a string; got 42/],
    ['namespace', '', /^namespace must have 1 to 512 bytes/],
    ['namespace', {}, /^namespace must be a string; got an object/],
    ['namespace', 'x'.repeat(513), /^namespace must have .* got 513/],
    ['cohort', 'no', /^cohort must be true or false; got "no"/],
    ['reentrant', 1, /^reentrant must be true or false; got 1/],
    ['maxWaiters', 0, /^maxWaiters must be a whole number from 1 .* got 0/],
    ['maxWaiters', 1.5, /^maxWaiters must be .* got 1.5/],
    ['maxWaiters', '10', /^maxWaiters must be .* got "10"/],
  ])('with %s: %j is refused, and the message says why', (option, value, message) => {
    expectConfigError(
      thrownBy(() => new Holdfast('memory:', { [option]: value })),
      message,
    );
  });

  test('takes what lies just inside its limits', () => {
    for (const ttl of [1_000, '1s', '10m', 600_000] as const) {
      expect(new Holdfast('memory:', { ttl })).toBeInstanceOf(Holdfast);
    }
  });

  test('asks for the least ttl that its engine can keep', () => {
    const slow = sourceWith({ minTtlMs: 3_000 });
    expectConfigError(
      thrownBy(() => new Holdfast(slow, { ttl: '2s' })),
      /^ttl must be from 3000 ms/,
    );
    expect(new Holdfast(slow, { ttl: '3s' }).traits.minTtlMs).toBe(3_000);
  });
});

describe('names', () => {
  test.each([[''], ['a\u0000'], ['\ud800'], [42], [undefined]])('%j is refused when the object is made', (name) => {
    const bad = wrong(name);
    for (const make of [
      () => locks.mutex(bad),
      () => locks.rwLock(bad),
      () => locks.semaphore(bad, 4),
      () => locks.election(bad),
      () => locks.register(bad),
    ]) {
      expectConfigError(thrownBy(make), /^A lock name must/);
    }
  });

  test('once and evict refuse them too', async () => {
    expectConfigError(await rejectionOf(() => locks.once('', {}, () => 1)), /^A lock name/);
    expectConfigError(await rejectionOf(() => locks.evict('', 'id')), /^A lock name/);
    expectConfigError(await rejectionOf(() => locks.evict('n', '')), /^A claim id/);
  });
});

describe('acquire', () => {
  const cases: readonly (readonly [keyof AcquireOptions, unknown, RegExp])[] = [
    ['timeout', 'soon', /^timeout must be a duration .* got "soon"/],
    ['timeout', -1, /^timeout must be a duration/],
    ['timeout', Number.NaN, /^timeout must be a duration/],
    ['maxHold', '1 day', /^maxHold must be a duration/],
    ['signal', {}, /^signal must be an AbortSignal; got an object/],
    ['signal', new AbortController(), /^signal must be an AbortSignal/],
    ['signal', 'stop', /^signal must be an AbortSignal; got "stop"/],
    ['label', '', /^label must have 1 to 512 bytes/],
    ['permits', 1, /permits are for semaphores; "m" is a lock/],
    ['within', {}, /^within must be a lease/],
    ['within', true, /^within must be a lease/],
  ];

  test.each(cases)('with %s: %o rejects, and the message says why', async (option, value, message) => {
    const options = wrong({ [option]: value });
    const lock = locks.mutex('m');
    expectConfigError(await rejectionOf(() => lock.acquire(options)), message);
    expectConfigError(await rejectionOf(() => lock.run(options, () => 1)), message);
    if (option !== 'timeout') expectConfigError(await rejectionOf(() => lock.tryAcquire(options)), message);
    expect((await lock.inspect()).claims, 'and nothing stands in line for it').toEqual([]);
  });

  test('within a lease of another lock, or one that is over, is refused', async () => {
    const other = await locks.mutex('other').acquire();
    const within = (lease: Lease) => () => locks.mutex('m').acquire({ within: lease });
    expectConfigError(await rejectionOf(within(other)), /within must be a lease of "m"; got one of "other"/);
    await other.release();
    const over = await locks.mutex('m').acquire();
    await over.release();
    expect(await rejectionOf(within(over))).toMatchObject({ code: 'HOLDFAST_LOST', reason: 'released' });
  });

  test.each([[0], [1.5], [5], [-1], ['2'], [Number.NaN]])('%j permits of 4 are refused', async (permits) => {
    const options = { permits: wrong(permits) };
    const semaphore = locks.semaphore('gpu', 4);
    expectConfigError(
      await rejectionOf(() => semaphore.acquire(options)),
      /^permits must be a whole number from 1 to 4; got /,
    );
  });

  test.each([[0], [1.5], [2 ** 31], ['4'], [undefined]])('a semaphore of %j permits is refused', (permits) => {
    const thrown = thrownBy(() => locks.semaphore('gpu', wrong(permits)));
    expectConfigError(thrown, /number of permits must be a whole number from 1 to 2147483647; got /);
  });

  test('with an aborted signal rejects with its reason, and asks nothing of the engine', async () => {
    const engine = new ScriptedEngine();
    const own = new Holdfast(engine, { clock: new VirtualClock() });
    const reason = { my: 'reason' };
    expect(await rejectionOf(() => own.mutex('m').acquire({ signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(engine.sessions).toEqual([]);
  });
});

describe('downgrade', () => {
  test('is for those who hold all of a lock, whatever JavaScript lets them call', async () => {
    for (const lock of [locks.rwLock('d').read, locks.semaphore('d', 3)]) {
      const lease = (await lock.acquire()) as WriteLease;
      expectConfigError(
        await rejectionOf(() => lease.downgrade()),
        /^Only the lease of a write lock can be downgraded/,
      );
      expect(lease.held).toBe(true);
      await lease.release();
      expect((await lock.inspect()).claims).toEqual([]);
    }
  });
});

describe('a function to run', () => {
  test.each([[undefined], ['work'], [{}]])('is missing: %j', async (work) => {
    const bad = wrong(work);
    const lock = locks.mutex('m');
    expectConfigError(await rejectionOf(() => lock.run(bad)), /^run needs a function to run; got /);
    expectConfigError(await rejectionOf(() => lock.run({}, bad)), /^run needs a function/);
    expectConfigError(await rejectionOf(() => locks.all([lock]).run(bad)), /^run needs a function/);
    expectConfigError(await rejectionOf(() => locks.once('m', {}, bad)), /^once needs a function/);
    expectConfigError(await rejectionOf(() => locks.election('m').lead(bad)), /^lead needs a function/);
    expect((await lock.inspect()).claims, 'and nothing was acquired for it').toEqual([]);
  });
});

describe('all', () => {
  test.each([[[]], [undefined], ['locks'], [{}]])('is not made of %j', (list) => {
    expectConfigError(
      thrownBy(() => locks.all(wrong(list))),
      /all\(\) needs an array of locks; got /,
    );
  });

  test('is made of locks of the same Holdfast only', () => {
    const message = /all\(\) takes mutexes, read locks, write locks and semaphores of the same Holdfast/;
    expectConfigError(
      thrownBy(() => locks.all([locks.mutex('a'), stranger.mutex('b')])),
      message,
    );
    expectConfigError(
      thrownBy(() => locks.all([wrong({ name: 'a' })])),
      message,
    );
    expectConfigError(
      thrownBy(() => locks.all([wrong(locks.election('a'))])),
      message,
    );
    expectConfigError(
      thrownBy(() => locks.all([wrong(locks.all([locks.mutex('a')]))])),
      message,
    );
  });

  test('refuses one semaphore with two numbers of permits', () => {
    const both = [locks.semaphore('gpu', 4), locks.semaphore('gpu', 5)];
    expectConfigError(
      thrownBy(() => locks.all(both)),
      /"gpu" with two numbers of permits/,
    );
  });

  test('has a lease for each of its locks, and for no other', async () => {
    const a = locks.mutex('a');
    await using leases = await locks.all([a]).acquire();
    expect(leases.of(a)).toMatchObject({ name: 'a', held: true });
    expectConfigError(
      thrownBy(() => leases.of(locks.mutex('b'))),
      /"b" is not among these locks/,
    );
  });

  test('passes on what is wrong with its options', async () => {
    const both = locks.all([locks.mutex('a'), locks.mutex('b')]);
    expectConfigError(await rejectionOf(() => both.acquire({ timeout: wrong('soon') })), /^timeout must be/);
    expectConfigError(await rejectionOf(() => both.tryAcquire({ signal: wrong({}) })), /^signal must be/);
    expect((await locks.mutex('a').inspect()).claims).toEqual([]);
  });
});

describe('a register', () => {
  test('takes strings of at most 64 KiB', async () => {
    await using lease = await locks.mutex('r').acquire();
    const register = locks.register('r');
    for (const value of [42, undefined, null, {}, Buffer.from('x')]) {
      expectConfigError(await rejectionOf(() => register.set(wrong(value), lease)), /value must be a string; got /);
    }
    await register.set('é'.repeat(32 * 1_024), lease);
    expectConfigError(
      await rejectionOf(() => register.set('é'.repeat(32 * 1_024 + 1), lease)),
      /must have 0 to 65536 bytes in UTF-8; got 65538/,
    );
    expect((await register.get())?.value).toHaveLength(32 * 1_024);
  });

  test('takes a lease of its own name that can be fenced', async () => {
    const register = locks.register('r');
    await using other = await locks.mutex('other').acquire();
    await using permit = await locks.semaphore('r', 4).acquire();
    for (const call of [(lease: Lease) => register.set('x', lease), (lease: Lease) => register.get(lease)]) {
      expectConfigError(await rejectionOf(() => call(other)), /needs a lease of "r", not one of "other"/);
      expectConfigError(await rejectionOf(() => call(permit)), /semaphore lease of "r" can't open a fence/);
      expectConfigError(await rejectionOf(() => call(wrong({ token: 1n, name: 'r' }))), /must be a lease that acquire/);
    }
    await using reader = await locks.rwLock('r').read.acquire();
    expectConfigError(await rejectionOf(() => register.set('x', reader)), /read lease of "r" can't write/);
  });
});

describe('elections and once', () => {
  test('refuse what is wrong with their options by its own name', async () => {
    const election = locks.election('e');
    const campaign = (options: unknown) => () => election.campaign(wrong(options));
    expectConfigError(await rejectionOf(campaign({ value: 42 })), /election's value must be a string; got 42/);
    expectConfigError(
      await rejectionOf(campaign({ value: 'x'.repeat(65_537) })),
      /election's value must have 0 to 65536 bytes in UTF-8; got 65537/,
    );
    expectConfigError(await rejectionOf(campaign({ timeout: 'soon' })), /^timeout must be/);
    expectConfigError(await rejectionOf(campaign({ signal: {} })), /^signal must be an AbortSignal/);
    expectConfigError(await rejectionOf(campaign({ label: '' })), /^label must/);
    const once = (options: unknown) => () => locks.once('o', wrong(options), () => 1);
    expectConfigError(await rejectionOf(once({ atLeast: 'often' })), /^atLeast must be a duration/);
    expectConfigError(await rejectionOf(once({ atMost: 'long' })), /^atMost must be a duration/);
    expectConfigError(await rejectionOf(once({ label: '' })), /^label must/);
  });

  test('observe refuses a signal that is none', async () => {
    const observed = locks.election('e').observe({ signal: wrong('stop') });
    const next = (): Promise<unknown> => observed[Symbol.asyncIterator]().next();
    expectConfigError(await rejectionOf(next), /^signal must be an AbortSignal/);
  });
});

test.each([[null], [42], [[]]])('%j in place of options is refused by every call that takes some', async (value) => {
  const bad = wrong(value);
  const lock = locks.mutex('m');
  const both = locks.all([lock]);
  const election = locks.election('e');
  for (const call of [
    async () => new Holdfast('memory:', bad),
    () => lock.acquire(bad),
    () => lock.tryAcquire(bad),
    () => lock.run(bad, () => 1),
    () => both.acquire(bad),
    () => both.tryAcquire(bad),
    () => both.run(bad, () => 1),
    () => election.campaign(bad),
    () => election.lead(bad, () => 1),
    () => election.observe(bad)[Symbol.asyncIterator]().next(),
    () => locks.once('o', bad, () => 1),
    async () => locks.inspect(bad),
    () => locks.ready(bad),
    () => locks.close(bad),
  ])
    expectConfigError(await rejectionOf(call), / takes its options as an object; got /);
});

describe('two at once', () => {
  test('one has it and one that tries is told that it is busy, also if the first has let go by then', async () => {
    await using fresh = new Holdfast('memory:two-at-once');
    const lock = fresh.mutex('m');
    for (const first of [() => lock.acquire(), () => lock.tryAcquire()]) {
      const [held, tried] = [first(), lock.tryAcquire()];
      await (await held)!.release();
      expect(await tried).toBeUndefined();
    }
  });

  test('who tries to read beside one that begins to wait reads too', async () => {
    await using fresh = new Holdfast('memory:read-at-once');
    const { read } = fresh.rwLock('m');
    const [one, other] = await Promise.all([read.acquire(), read.tryAcquire()]);
    expect([one.held, other?.held]).toEqual([true, true]);
  });

  test('who tries beside one that will wait is told that it is busy, and is not in line', async () => {
    await using fresh = new Holdfast('memory:wait-at-once');
    await using holder = new Holdfast('memory:wait-at-once');
    const lease = await holder.mutex('m').acquire();
    const [waiting, tried] = [fresh.mutex('m').acquire(), fresh.mutex('m').tryAcquire()];
    expect(await tried).toBeUndefined();
    await lease.release();
    expect((await waiting).held).toBe(true);
  });
});

describe('maxWaiters', () => {
  test('is how many acquires may wait at once; what ends makes room', async () => {
    await using own = new Holdfast('memory:max-waiters', { maxWaiters: 2 });
    const lease = await own.mutex('m').acquire();
    const abort = new AbortController();
    const first = rejectionOf(() => own.mutex('m').acquire({ signal: abort.signal }));
    const second = own.mutex('m').acquire();
    const message = /^2 acquires are waiting in this process already, which is what maxWaiters allows/;
    expectConfigError(await rejectionOf(() => own.mutex('m').acquire()), message);
    expectConfigError(await rejectionOf(() => own.mutex('other').acquire()), message);
    abort.abort('enough');
    expect(await first).toBe('enough');
    const third = own.mutex('m').acquire();
    await lease.release();
    await (await second).release();
    await (await third).release();
    await (await own.mutex('m').acquire()).release();
  });

  test('does not count what is held', async () => {
    await using own = new Holdfast('memory:max-waiters', { maxWaiters: 1 });
    for (const name of ['a', 'b', 'c']) expect((await own.mutex(name).acquire()).held).toBe(true);
  });
});

/** An engine with these traits. It can't be reached: what it can't do is refused before anybody tries. */
function sourceWith(traits: Partial<Traits>): EngineSource {
  return {
    traits: { ...memoryTraits, ...traits },
    connect: () => Promise.reject(new Error('Nobody should connect.')),
  };
}

describe('what an engine can’t do is refused when the object is made', () => {
  test('read/write locks and semaphores', () => {
    const exclusive = new Holdfast(sourceWith({ sharing: 'exclusive' }));
    expect(() => exclusive.rwLock('n')).toThrow(UnsupportedError);
    expect(() => exclusive.semaphore('n', 2)).toThrow(UnsupportedError);
    expect(exclusive.mutex('n').name).toBe('n');
    const shared = new Holdfast(sourceWith({ sharing: 'shared' }));
    expect(() => shared.semaphore('n', 2)).toThrow(UnsupportedError);
    expect(shared.rwLock('n').read.name).toBe('n');
  });

  test('registers, and what needs them', async () => {
    const plain = new Holdfast(sourceWith({ registers: false }));
    expect(() => plain.register('n')).toThrow(UnsupportedError);
    expect(() => plain.election('n')).toThrow(UnsupportedError);
    expect(await rejectionOf(() => plain.once('n', {}, () => 1))).toBeInstanceOf(UnsupportedError);
  });

  test('listing, and what needs it', async () => {
    const blind = new Holdfast(sourceWith({ listing: false }));
    expect(() => blind.inspect()).toThrow(UnsupportedError);
    expect(() => blind.election('n')).toThrow(UnsupportedError);
    expect(await rejectionOf(() => blind.evict('n', 'id'))).toBeInstanceOf(UnsupportedError);
    expect(await rejectionOf(() => blind.mutex('n').inspect())).toBeInstanceOf(UnsupportedError);
    expect(blind.register('n').name).toBe('n');
  });

  test('making objects does no I/O', async () => {
    const engine = new ScriptedEngine();
    let connects = 0;
    engine.now({
      connect: () => {
        connects += 1;
        return Promise.resolve();
      },
    });
    const own = new Holdfast(engine, { clock: new VirtualClock() });
    own.mutex('n');
    own.rwLock('n');
    own.semaphore('n', 2);
    own.register('n');
    own.all([own.mutex('a'), own.mutex('b')]);
    await settled();
    expect(connects).toBe(0);
    await own.close();
    expect(connects, 'nor does closing what was never used').toBe(0);
  });
});

describe('a closed Holdfast', () => {
  test('says so, whatever is asked of it, and may be closed again', async () => {
    const own = new Holdfast('memory:closed');
    const lease = await own.mutex('m').acquire();
    await own.close();
    await own.close();
    expectClosed(await rejectionOf(() => own.mutex('m').acquire()));
    expectClosed(await rejectionOf(() => own.mutex('m').tryAcquire()));
    expectClosed(await rejectionOf(() => own.mutex('m').inspect()));
    expectClosed(await rejectionOf(() => own.evict('m', 'id')));
    expectClosed(await rejectionOf(() => own.register('m').get()));
    expectClosed(await rejectionOf(() => own.ready()));
    expect(lease.held).toBe(false);
    expect(await lease.release()).toBe(true);
  });
});
