/** Promises about who is inside, and about the end of an instance, that no program of the model can tell. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { EngineSource, Session } from '../../../src/core/engine.js';
import { currentFrame } from '../../../src/core/reentrancy.js';
import { memory } from '../../../src/engines/memory/index.js';
import {
  AcquireTimeoutError,
  ClosedError,
  DeadlockError,
  Holdfast,
  type Lease,
  LeaseLostError,
} from '../../../src/index.js';

/** The same engine, whose sessions are made over. */
function withSessions(source: EngineSource, make: (session: Session) => Partial<Session>): EngineSource {
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
          return { ...same, ...make(same) };
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
    const locks = new Holdfast('memory:nested-loss', { ttl: '1m' });
    const outer = await locks.mutex('job').acquire({ maxHold: '1s' });
    const inside: Lease[] = [outer];
    for (let depth = 0; depth < 5_000; depth += 1)
      inside.push(await locks.mutex('job').acquire({ within: inside.at(-1)! }));
    await new Promise((resolve) => inside.at(-1)!.signal.addEventListener('abort', resolve));
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

describe('a deadlock', () => {
  test('through the only permit of a semaphore is refused', async () => {
    await using locks = new Holdfast('memory:one-permit');
    const [permit, mutex] = [locks.semaphore('s', 1), locks.mutex('m')];
    const outcomes = await Promise.all([
      permit.run(async () => failureOf((await sleep(20), mutex.run(() => {})))),
      mutex.run(async () => failureOf((await sleep(20), permit.run(() => {})))),
    ]);
    expect(outcomes.filter((error) => error instanceof DeadlockError)).toHaveLength(1);
  });

  test('is none where another permit will be free', async () => {
    await using locks = new Holdfast('memory:two-permits');
    const [permits, mutex] = [locks.semaphore('s', 2), locks.mutex('m')];
    await permits.run({ permits: 2 }, async () => {
      let begin!: () => void;
      const begun = new Promise<void>((resolve) => (begin = resolve));
      const first = permits.run(async () => (await begun, mutex.run(() => 'first')));
      const second = permits.run(() => sleep(100, 'second'));
      const third = mutex.run(async () => (begin(), await sleep(10), permits.run(() => 'third')));
      expect(await Promise.all([first, second, third])).toEqual(['first', 'second', 'third']);
    });
  });

  test('through a term that close() has ended is refused', async () => {
    const locks = new Holdfast('memory:ended-term', { ttl: '1m' });
    const leading = locks.election('e').lead(async (term) => {
      await new Promise((resolve) => term.signal.addEventListener('abort', resolve));
      return failureOf((await sleep(20), locks.mutex('m').run(() => {})));
    });
    const other = locks.mutex('m').run(async () => failureOf((await sleep(60), locks.mutex('e').run(() => {}))));
    await sleep(20);
    await locks.close();
    expect([await leading, await other].filter((error) => error instanceof DeadlockError)).toHaveLength(1);
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
      await sleep(40);
      throw thrown;
    };
    expect(await failureOf(locks.mutex('a').run({ maxHold: 10 }, work))).toBe(thrown);
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
