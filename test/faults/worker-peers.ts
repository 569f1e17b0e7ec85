/**
 * Other libraries under the same workload, used as their documentation shows. They live in a folder of their own
 * (`npm run faults:peers` fills it) and have no fencing token: the register takes whatever they write.
 */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { HeldLock, TestLocks, Want } from './worker-locks.js';
import type { WorkerSetup } from './worker-setup.js';

interface Client {
  disconnect(): void;
}

interface RedlockLock {
  readonly expiration: number;
  release(): Promise<unknown>;
}

interface Redlock {
  acquire(names: string[], ttlMs: number, settings: object): Promise<RedlockLock>;
}

interface SemaphoreMutex {
  readonly isAcquired: boolean;
  acquire(): Promise<void>;
  release(): Promise<void>;
}

export function peerLocks(setup: WorkerSetup): TestLocks {
  const load = createRequire(join(setup.peers, 'package.json'));
  const { Redis } = load('ioredis') as { Redis: new (url: string) => Client };
  const client = new Redis(setup.url);
  const take = setup.lock === 'redlock' ? redlock(load, client, setup) : redisSemaphore(load, client, setup);
  return {
    acquire: take,
    close: async () => client.disconnect(),
  };
}

type Take = (want: Want) => Promise<HeldLock | undefined>;

/** It extends nothing by itself with `acquire`, and says when it expires by the wall clock. */
function redlock(load: NodeJS.Require, client: Client, { ttlMs }: WorkerSetup): Take {
  const { default: Redlock } = load('redlock') as { default: new (clients: Client[], settings: object) => Redlock };
  const locks = new Redlock([client], { retryDelay: 10, retryJitter: 5 });
  return async ({ name, timeoutMs = 10 * ttlMs }) => {
    const lock = await locks.acquire([name], ttlMs, { retryCount: Math.ceil(timeoutMs / 10) }).catch(busy);
    if (!lock) return undefined;
    return {
      token: undefined,
      get held() {
        return lock.expiration > Date.now();
      },
      onLost: () => {},
      release: () =>
        lock.release().then(
          () => true,
          () => false,
        ),
    };
  };
}

/** It extends by itself, and says that it has lost the lock when a timer has found out. */
function redisSemaphore(load: NodeJS.Require, client: Client, { ttlMs }: WorkerSetup): Take {
  const { Mutex } = load('redis-semaphore') as {
    Mutex: new (client: Client, name: string, options: object) => SemaphoreMutex;
  };
  return async ({ name, timeoutMs = 10 * ttlMs }) => {
    const lost: ((reason: string) => void)[] = [];
    const mutex = new Mutex(client, name, {
      lockTimeout: ttlMs,
      acquireTimeout: timeoutMs || 1,
      retryInterval: 10,
      onLockLost: (error: Error) => lost.forEach((tell) => tell(error.message)),
    });
    const granted = await mutex.acquire().then(
      () => true,
      () => false,
    );
    if (!granted) return undefined;
    return {
      token: undefined,
      get held() {
        return mutex.isAcquired;
      },
      onLost: (tell) => void lost.push(tell),
      release: () =>
        mutex.release().then(
          () => true,
          () => false,
        ),
    };
  };
}

function busy(): undefined {
  return undefined;
}
