/**
 * The memory engine against `async-mutex`, a plain in-process mutex. It has no sessions, tokens, timeouts or `inspect`;
 * the ratio says what these cost where there is no network to hide them.
 */
import { Mutex, tryAcquire } from 'async-mutex';
import { Holdfast, type Lock } from 'holdfast';
import { type Contest, repeat, together } from '../measure.js';

const SEQUENCE = 100;
const WAITERS = 1_000;
const NAMES = 64;

export const peer = 'async-mutex';

export async function* contests(): AsyncIterable<Contest> {
  await using locks = new Holdfast('memory:bench');
  await locks.ready();
  yield selfCheck();
  yield uncontended(locks);
  yield waiters(locks);
  yield manyNames(locks);
  yield tryAgain(locks);
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

export async function useOurs(lock: Lock): Promise<void> {
  const lease = await lock.acquire();
  await lease.release();
}

async function usePeer(mutex: Mutex): Promise<void> {
  const release = await mutex.acquire();
  release();
}
