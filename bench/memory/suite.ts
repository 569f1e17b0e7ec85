/**
 * The memory engine against `async-mutex`, a plain in-process mutex. It has no sessions, tokens, timeouts or `inspect`;
 * the ratio says what these cost where there is no network to hide them.
 */
import { Mutex, Semaphore, tryAcquire, withTimeout } from 'async-mutex';
import { AcquireTimeoutError, Holdfast, type Lock } from 'holdfast';
import { type Contest, repeat, together } from '../measure.js';
import { callsOf, unbundled } from './calls.js';

const SEQUENCE = 100;
const WAITERS = 1_000;
const NAMES = 64;
const TIMEOUT_MS = 20;
const SELF_STARTED = 100_000;

export const peer = 'async-mutex';

export async function* contests(): AsyncIterable<Contest> {
  await using locks = new Holdfast('memory:bench', { maxWaiters: 20_000 });
  await locks.ready();
  yield selfCheck();
  yield uncontended(locks);
  yield waiters(locks);
  yield manyNames(locks);
  yield tryAgain(locks);
  yield nested(locks);
  yield timeouts(locks, 1_000);
  yield timeouts(locks, 10_000);
  yield selfStarted(locks);
}

/** How far the code of one call reaches. */
export async function* facts(): AsyncIterable<string> {
  const { Holdfast: Unbundled } = await unbundled();
  await using locks = new Unbundled('memory:bench');
  const lock = locks.mutex('facts');
  // What is done once only is not counted.
  for (let time = 0; time < 3; time += 1) await lock.run(() => {});
  const run = await callsOf(() => lock.run(() => {}));
  yield `one uncontended run: ${run.calls} calls in ${run.files} files (goal: at most 90 calls)`;
  const lease = await lock.acquire();
  const held = await callsOf(() => Promise.resolve(lease.held));
  yield `lease.held: ${held.calls} calls in ${held.files} files (goal: at most 2 files)`;
}

/** The peer on both sides: what is not 1.0 here is noise, and every other row has as much of it. */
function selfCheck(): Contest {
  const mutex = new Mutex();
  const side = (): Promise<void> => repeat(SEQUENCE, () => usePeer(mutex));
  return { name: 'self-check: the peer against itself', operations: SEQUENCE, ours: side, peer: side };
}

function uncontended(locks: Holdfast): Contest {
  const lock = locks.mutex('uncontended');
  const mutex = new Mutex();
  return {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(lock)),
    peer: () => repeat(SEQUENCE, () => usePeer(mutex)),
    goal: 0.5,
  };
}

/** All ask at once; the time runs until the last one was served. */
function waiters(locks: Holdfast): Contest {
  const lock = locks.mutex('waiters');
  const mutex = new Mutex();
  return {
    name: '1,000 waiters on one lock',
    operations: WAITERS,
    ours: () => together(WAITERS, () => useOurs(lock)),
    peer: () => together(WAITERS, () => usePeer(mutex)),
    goal: 0.5,
  };
}

function manyNames(locks: Holdfast): Contest {
  const pairs = Array.from({ length: NAMES }, (_, at) => ({ lock: locks.mutex(`name:${at}`), mutex: new Mutex() }));
  return {
    name: '64 in flight on different names',
    operations: NAMES,
    ours: () => together(NAMES, (at) => useOurs(pairs[at]!.lock)),
    peer: () => together(NAMES, (at) => usePeer(pairs[at]!.mutex)),
  };
}

/** Only of a free lock: on a busy one the peer's answer waits for a timer of 1 ms, and a ratio would measure that. */
function tryAgain(locks: Holdfast): Contest {
  const lock = locks.mutex('try');
  const tried = tryAcquire(new Mutex());
  return {
    name: 'tryAcquire + release, free',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, async () => (await lock.tryAcquire())!.release()),
    peer: () => repeat(SEQUENCE, async () => (await tried.acquire())()),
  };
}

/** The peer has no re-entrancy: its inner run takes another mutex. */
function nested(locks: Holdfast): Contest {
  const lock = locks.mutex('nested');
  const [outer, inner] = [new Mutex(), new Mutex()];
  return {
    name: 'a run inside a run',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => lock.run(() => lock.run(() => {}))),
    peer: () => repeat(SEQUENCE, () => outer.runExclusive(() => inner.runExclusive(() => {}))),
  };
}

/** All give up in the same moment. Ours are told who holds it. */
function timeouts(locks: Holdfast, count: number): Contest {
  const semaphore = locks.semaphore('timeouts', 1);
  const peers = withTimeout(new Semaphore(1), TIMEOUT_MS);
  const ours = async (): Promise<void> => {
    await using _ = await semaphore.acquire();
    await together(count, async () => {
      const error: unknown = await semaphore.acquire({ timeout: TIMEOUT_MS }).catch((reason: unknown) => reason);
      if (!(error instanceof AcquireTimeoutError)) throw new Error('it should have timed out');
    });
  };
  const peer = async (): Promise<void> => {
    const [, release] = await peers.acquire();
    await together(count, () => peers.acquire().catch(() => {}));
    release();
  };
  return {
    name: `${count.toLocaleString('en')} waiters of a semaphore time out together`,
    operations: count,
    ours,
    peer,
    pairs: 11,
  };
}

/** A job that starts its next run inside its last one. */
function selfStarted(locks: Holdfast): Contest {
  const lock = locks.mutex('self-started');
  const mutex = new Mutex();
  return {
    name: '100,000 runs, each started inside the last',
    operations: SELF_STARTED,
    ours: () => startItself((work) => lock.run(work)),
    peer: () => startItself((work) => mutex.runExclusive(work)),
    pairs: 3,
  };
}

function startItself(run: (work: () => void) => Promise<unknown>): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = SELF_STARTED;
    const next = (): void => {
      run(() => {
        left -= 1;
        setImmediate(left > 0 ? next : resolve);
      }).catch(reject);
    };
    next();
  });
}

export async function useOurs(lock: Lock): Promise<void> {
  const lease = await lock.acquire();
  await lease.release();
}

async function usePeer(mutex: Mutex): Promise<void> {
  const release = await mutex.acquire();
  release();
}
