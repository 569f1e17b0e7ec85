/** Promises about who is inside, and about the end of an instance, that no program of the model can tell. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { EngineSource, Session, SessionListener } from '../../../src/core/engine.js';
import { currentFrame } from '../../../src/core/reentrancy.js';
import { memory } from '../../../src/engines/memory/index.js';
import { AcquireTimeoutError, ClosedError, Holdfast, type Lease, LeaseLostError } from '../../../src/index.js';
import { VirtualClock } from '../virtual-clock.js';

/** The same engine, whose sessions are made over. */
function withSessions(
  source: EngineSource,
  make: (session: Session, listener: SessionListener) => Partial<Session>,
): EngineSource {
  return {
    ...source,
    connect: async (setup) => {
      const engine = await source.connect(setup);
      return {
        inspect: (query) => engine.inspect!(query),
        open: async (options, listener) => {
          const session = await engine.open(options, listener);
          const same: Session = {
            ttlMs: session.ttlMs,
            enter: (claim) => session.enter(claim),
            leave: (claim) => session.leave(claim),
            reweigh: (claim) => session.reweigh(claim),
            beat: (roster) => session.beat(roster),
            close: () => session.close(),
          };
          return { ...same, ...make(same, listener) };
        },
        [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
      };
    },
  };
}

/** It is closed all the same: a session that only dies would be buried by a timer, while other tests watch the clock. */
function throwing(what: keyof Session, session: Session): Partial<Session> {
  return {
    [what]: () => {
      if (what === 'close') void session.close();
      throw new Error(`no ${what}`);
    },
  };
}

function fail(): never {
  throw new TypeError('at once');
}

/** What a promise rejects with. */
async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => new Error('it should have failed'),
    (error: unknown) => error,
  );
}

describe('a run that has ended', () => {
  test('is kept alive by nothing, though the next was started inside it', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    await using locks = new Holdfast('memory:collected');
    const frames: WeakRef<object>[] = [];
    await new Promise<void>((resolve, reject) => {
      const next = (): void => {
        const ran = locks.mutex('job').run(() => {
          frames.push(new WeakRef(currentFrame()!));
          setImmediate(frames.length < 300 ? next : resolve);
        });
        ran.catch(reject);
      };
      next();
    });
    await sleep(1);
    collect();
    expect(frames.filter((frame) => frame.deref()).length).toBeLessThan(10);
  });

  test('may have started thousands inside it, one in the other', async () => {
    const locks = new Holdfast('memory:nested', { ttl: '1m' });
    const depth = 6_000;
    let begun = 0;
    const ran: Promise<void>[] = [];
    const next = (): void => {
      ran.push(
        locks.mutex('job').run(() => {
          begun += 1;
          if (begun < depth) next();
        }),
      );
    };
    next();
    await Promise.all(ran);
    expect(begun).toBe(depth);
    await locks.close({ drain: 0 });
  });

  test('takes thousands with it that are nested in it, when it is lost', async () => {
    const clock = new VirtualClock();
    const locks = new Holdfast(memory('nested-loss'), { clock });
    const outer = await locks.mutex('job').acquire({ maxHold: '1s' });
    const inside: Lease[] = [outer];
    for (let depth = 0; depth < 5_000; depth += 1)
      inside.push(await locks.mutex('job').acquire({ within: inside.at(-1)! }));
    await clock.advance(1_000);
    expect(inside.every(({ state }) => state === 'lost')).toBe(true);
    await (await locks.mutex('job').acquire()).release();
    await locks.close({ drain: 0 });
  });
});

describe('those who wait inside a lease that is released', () => {
  test('take the real lock in their order', async () => {
    await using locks = new Holdfast('memory:expelled');
    const order: number[] = [];
    const waiting: Promise<unknown>[] = [];
    await locks.mutex('a').run(async (outer) => {
      const first = await locks.mutex('a').acquire();
      for (const number of [1, 2, 3, 4, 5]) waiting.push(locks.mutex('a').run(() => order.push(number)));
      await outer.release();
      await first.release();
    });
    await Promise.all(waiting);
    expect(order).toEqual([1, 2, 3, 4, 5]);
  });
});

describe('an engine that calls back before its enter has returned', () => {
  test('may grant the claim', async () => {
    const source = withSessions(memory('grants-inside'), (session, listener) => ({
      enter: (claim) => {
        listener.granted(claim.id, 7n);
        return session.enter(claim);
      },
    }));
    await using locks = new Holdfast(source, { cohort: false });
    // With a session that is there already, the enter is sent in the very call.
    await locks.ready();
    const lease = await locks.mutex('a').acquire({ timeout: '5s' });
    expect([lease.held, await lease.release()]).toEqual([true, true]);
  });

  test('may take the claim away, or end the session: another is made', async () => {
    for (const what of ['lost', 'ended'] as const) {
      let enters = 0;
      const source = withSessions(memory(`${what}-inside`), (session, listener) => ({
        enter: (claim) => {
          enters += 1;
          if (enters === 1 && what === 'lost') listener.lost(claim.id, { reason: 'session' });
          if (enters === 1 && what === 'ended') listener.ended({ reason: 'session' });
          return session.enter(claim);
        },
      }));
      await using locks = new Holdfast(source);
      await locks.ready();
      const lease = await locks.mutex('a').acquire({ timeout: '5s' });
      expect([lease.held, enters]).toEqual([true, 2]);
    }
  });

  test('may take the claim away: the other is left when nobody waits for it any more', async () => {
    let enters = 0;
    const source = withSessions(memory('left-inside'), (session, listener) => ({
      enter: (claim) => {
        enters += 1;
        if (enters === 1) listener.lost(claim.id, { reason: 'session' });
        return session.enter(claim);
      },
    }));
    await using holder = new Holdfast(memory('left-inside'));
    await using locks = new Holdfast(source);
    await holder.mutex('a').acquire();
    await locks.ready();
    await expect(locks.mutex('a').acquire({ timeout: '50ms' })).rejects.toThrow(AcquireTimeoutError);
    await expect
      .poll(async () => (await holder.mutex('a').inspect()).claims.map(({ state }) => state))
      .toEqual(['held']);
    expect(enters).toBe(2);
  });
});

describe('an engine that never answers to connect', () => {
  test('is asked again, and the one that comes too late is given back', async () => {
    const clock = new VirtualClock();
    const source = memory('hanging-connect');
    let answer!: () => void;
    const late = new Promise<void>((resolve) => (answer = resolve));
    let [connects, disposed] = [0, 0];
    const connect: EngineSource['connect'] = async (setup) => {
      connects += 1;
      if (connects > 1) return source.connect(setup);
      await late;
      const engine = await source.connect(setup);
      return {
        ...engine,
        open: () => Promise.reject(new Error('late')),
        [Symbol.asyncDispose]: async () => void (disposed += 1),
      };
    };
    await using locks = new Holdfast({ ...source, connect }, { clock, ttl: '3s' });
    const first = failureOf(locks.mutex('a').acquire());
    await clock.advance(20_000);
    expect(await first).toMatchObject({ code: 'HOLDFAST_ENGINE' });
    const second = locks.mutex('a').acquire();
    await clock.advance(3_000);
    expect((await second).held).toBe(true);
    answer();
    await clock.advance(1);
    expect([connects, disposed]).toEqual([2, 1]);
  });

  test('leaves no timer behind when it is closed', async () => {
    const clock = new VirtualClock();
    const source: EngineSource = { ...memory('never-connected'), connect: () => new Promise(() => {}) };
    const locks = new Holdfast(source, { clock, ttl: '3s' });
    const waiting = failureOf(locks.mutex('a').acquire());
    await clock.advance(10);
    const closed = locks.close();
    await clock.advance(3_000);
    await closed;
    expect(await waiting).toBeInstanceOf(ClosedError);
    expect(clock.timersPending).toBe(0);
  });
});

describe('a signal', () => {
  test('that aborts because of what acquire() notices is heard', async () => {
    let now = 0;
    const clock = { ...systemClock, now: () => now };
    await using others = new Holdfast(memory('noticed'), { ttl: '10m' });
    await using _ = await others.mutex('b').acquire();
    await using locks = new Holdfast(memory('noticed'), { clock });
    const { signal } = await locks.mutex('a').acquire();
    now = 60_000;
    expect(await failureOf(locks.mutex('b').acquire({ signal, timeout: '2s' }))).toBe(signal.reason);
  });
});

describe('an instance that closes', () => {
  test('lets no leader campaign again, also inside a function that may go on', async () => {
    const locks = new Holdfast('memory:no-next-term');
    let terms = 0;
    const running = locks.mutex('a').run(() =>
      locks.election('e').lead(async ({ signal }) => {
        terms += 1;
        await sleep(60_000, undefined, { signal });
      }),
    );
    running.catch(() => {});
    await sleep(20);
    await locks.close({ drain: '2s' });
    expect(await failureOf(running)).toBeInstanceOf(ClosedError);
    expect(terms).toBe(1);
  });

  test('closes also the realms that were first used while it drained', async () => {
    let open = 0;
    const counted = withSessions(memory('late-realm'), (session) => {
      open += 1;
      return { close: () => ((open -= 1), session.close()) };
    });
    const locks = new Holdfast({ ...counted, realm: (name) => name }, { ttl: '10s' });
    let inner: Lease | undefined;
    let go!: () => void;
    const closing = new Promise<void>((resolve) => (go = resolve));
    const running = locks.mutex('a').run(async () => {
      await closing;
      inner = await locks.mutex('b').acquire();
      await sleep(200);
    });
    running.catch(() => {});
    await sleep(20);
    const closed = locks.close({ drain: 100 });
    go();
    await closed;
    expect([inner!.held, inner!.state]).toEqual([false, 'released']);
    expect(open).toBe(0);
  });

  test('tells who waits inside a lease that it is closed', async () => {
    const locks = new Holdfast('memory:floor-closed');
    const outer = await locks.mutex('a').acquire();
    await locks.mutex('a').acquire({ within: outer });
    const waiting = failureOf(locks.mutex('a').acquire({ within: outer }));
    await locks.close();
    expect(await waiting).toBeInstanceOf(ClosedError);
    expect(await failureOf(locks.mutex('a').acquire({ within: outer }))).toBeInstanceOf(ClosedError);
  });

  test('ends those who observe, and calls that nobody answers', async () => {
    const locks = new Holdfast('memory:observed', { ttl: '10m' });
    const leaders = locks.election('e').observe()[Symbol.asyncIterator]();
    expect(await leaders.next()).toMatchObject({ value: undefined });
    const next = failureOf(leaders.next());
    await locks.close();
    expect(await next).toBeInstanceOf(ClosedError);
  });
});

describe('close() inside a run', { timeout: 5_000 }, () => {
  test('does not wait for that run, also where only `within` says what it is inside of', async () => {
    const locks = new Holdfast('memory:closed-within', { ttl: '10m' });
    let hand!: (lease: Lease) => void;
    const handed = new Promise<Lease>((resolve) => (hand = resolve));
    // It is started here, so it knows of the run below by nothing but the lease.
    const closing = handed.then((within) => locks.mutex('a').run({ within }, () => locks.close()));
    await locks.mutex('a').run((lease) => (hand(lease), closing));
    await locks.close();
  });
});

describe('an error', () => {
  test('of the user is passed on as it is, whatever its cause is like', async () => {
    await using locks = new Holdfast('memory:causes');
    class Stubborn extends Error {
      override get cause(): undefined {
        return undefined;
      }
    }
    const thrown = new Stubborn('mine');
    const work = async (): Promise<never> => {
      await sleep(400);
      throw thrown;
    };
    expect(await failureOf(locks.mutex('a').run({ maxHold: 300 }, work))).toBe(thrown);
  });

  test('about another lock ends a leader, though its term is lost, too', async () => {
    await using locks = new Holdfast('memory:other-loss');
    const other = await locks.mutex('other').acquire({ maxHold: 10 });
    const leading = locks.election('e').lead(async ({ signal }) => {
      const [claim] = (await locks.mutex('e').inspect()).claims;
      await locks.evict('e', claim!.id, 'test');
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      await sleep(20);
      other.assertHeld();
    });
    expect(await failureOf(leading)).toMatchObject({ code: 'HOLDFAST_LOST', lock: 'other' });
  });

  test('says that the lock was busy, if the engine has answered after an early trouble', async () => {
    await using holder = new Holdfast('memory:early-trouble');
    await using _ = await holder.mutex('a').acquire();
    let enters = 0;
    const source = withSessions(memory('early-trouble'), (session) => ({
      enter: (claim) => ((enters += 1), enters === 1 ? Promise.reject(new Error('reset')) : session.enter(claim)),
    }));
    await using locks = new Holdfast(source);
    const failure = await failureOf(locks.mutex('a').acquire({ timeout: 500 }));
    expect(failure).toBeInstanceOf(AcquireTimeoutError);
    expect(JSON.parse(JSON.stringify((failure as AcquireTimeoutError).holder))).toMatchObject({
      token: expect.stringMatching(/^\d+$/) as string,
    });
  });

  test('says who holds it, also if what it saw of that grows old just then', async () => {
    const clock = new VirtualClock();
    const { timer } = clock;
    // As Node.js does it: never sooner than after a millisecond.
    clock.timer = (ms, run) => timer(Math.max(1, ms), run);
    await using holder = new Holdfast('memory:old-look', { clock });
    await using locks = new Holdfast('memory:old-look', { clock });
    await using _ = await holder.mutex('a').acquire();
    const failure = failureOf(locks.mutex('a').acquire({ timeout: 500 }));
    await clock.advance(499);
    clock.stall(750.5);
    await clock.advance(10);
    expect((await failure) as AcquireTimeoutError).toMatchObject({ holder: { session: expect.any(String) as string } });
  });

  test('that an engine throws instead of rejecting is a failure like any other', async () => {
    for (const what of ['enter', 'leave', 'reweigh', 'beat', 'close'] as const) {
      const source = withSessions(memory(`throws-${what}`), (session) => throwing(what, session));
      const locks = new Holdfast(source, { ttl: '1s' });
      const lease = await locks
        .rwLock('a')
        .write.acquire({ timeout: 50 })
        .catch(() => undefined);
      if (what !== 'enter') expect(lease!.held).toBe(true);
      if (what === 'reweigh') await lease!.downgrade();
      if (what === 'beat') await new Promise((resolve) => lease!.signal.addEventListener('abort', resolve));
      await lease?.release();
      await locks.close();
    }
  });

  test('that registers, evictions or listings throw instead of rejecting is one of ours', async () => {
    const source = memory('throws-elsewhere');
    const connect: EngineSource['connect'] = async (setup) => {
      const engine = await source.connect(setup);
      const registers = { read: fail, write: fail };
      return {
        open: (options, listener) => engine.open(options, listener),
        evict: fail,
        inspect: fail,
        registers,
        [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
      };
    };
    await using locks = new Holdfast({ ...source, connect });
    const failures = await Promise.all([
      failureOf(locks.register('a').get()),
      failureOf(locks.evict('a', 'b', 'c')),
      failureOf(locks.mutex('a').inspect()),
    ]);
    for (const failure of failures) expect(failure).toMatchObject({ code: 'HOLDFAST_ENGINE' });
  });

  test('of a lease in doubt does not say that it was released', async () => {
    let aheadMs = 0;
    const clock = {
      now: () => performance.now(),
      wall: () => Date.now() + aheadMs,
      random: () => 0.5,
      id: () => crypto.randomUUID(),
      timer: (ms: number, run: () => void) => setTimeout(run, ms),
    };
    await using locks = new Holdfast(memory('doubt'), { clock });
    const lease = await locks.mutex('a').acquire();
    aheadMs = 60_000;
    expect(lease.state).toBe('jeopardy');
    expect(() => lease.assertHeld()).toThrow(LeaseLostError);
    expect(() => lease.assertHeld()).toThrow(/suspended/);
    aheadMs = 0;
  });
});
