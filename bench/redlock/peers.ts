/** The same lock on the same nodes by others: used as their documentation shows, but asking every 10 ms when it is busy. */
import { Redis } from 'ioredis';
import { Holdfast } from 'holdfast';
import { redlock } from 'holdfast/redis';
import { RedlockMutex } from 'redis-semaphore';
import Redlock from 'redlock';
import { useOurs } from '../memory/suite.js';

export type Side = 'holdfast' | 'redlock 5' | 'redis-semaphore';

/** Takes a lock and gives it back. */
export type Use = (name: string) => Promise<void>;

export interface User extends AsyncDisposable {
  readonly use: Use;
}

/** With 10 s the row of processes did not end within minutes: keys of redlock 5 stayed on single nodes. */
const TTL_MS = 1_000;
const PAUSE_MS = 10;

export async function userOf(side: Side, ports: readonly number[]): Promise<User> {
  const nodes = ports.map((port) => new Redis(port));
  const locks = new Holdfast(redlock(nodes), { ttl: TTL_MS });
  if (side === 'holdfast') await locks.ready();
  const uses: Readonly<Record<Side, Use>> = {
    holdfast: (name) => useOurs(locks.mutex(name)),
    'redlock 5': redlockFive(nodes),
    'redis-semaphore': redisSemaphore(nodes),
  };
  return {
    use: uses[side],
    async [Symbol.asyncDispose]() {
      await locks.close();
      for (const node of nodes) node.disconnect();
    },
  };
}

function redlockFive(nodes: Redis[]): Use {
  const locks = new Redlock(nodes, { retryCount: 100_000, retryDelay: PAUSE_MS, retryJitter: PAUSE_MS / 2 });
  return async (name) => {
    const lock = await locks.acquire([`five:${name}`], TTL_MS);
    await lock.release();
  };
}

function redisSemaphore(nodes: Redis[]): Use {
  const settings = { lockTimeout: TTL_MS, retryInterval: PAUSE_MS, acquireTimeout: 120_000 };
  return async (name) => {
    const mutex = new RedlockMutex(nodes, name, settings);
    await mutex.acquire();
    await mutex.release();
  };
}
