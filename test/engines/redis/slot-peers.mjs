/** JavaScript, because processes of their own use it, too, and begin quicker without a compiler. Types: slot-peers.d.mts. */
import { Redis } from 'ioredis';
import { Redisson } from 'node-redisson';
import { Mutex } from 'redis-semaphore';
import Redlock from 'redlock';

/** How often they ask, where they ask. */
const RETRY_MS = 10;
/** For ever, by the measure of a test. */
const PATIENCE_MS = 60_000;

function redlock(port, ttlMs) {
  const client = new Redis(port);
  const locks = new Redlock([client], { retryDelay: RETRY_MS, retryJitter: RETRY_MS / 2 });
  const take = async (name, retryCount) => {
    const lock = await locks.acquire([name], ttlMs, { retryCount });
    return () => lock.release();
  };
  return {
    keyOf: (name) => name,
    lock: (name) => take(name, PATIENCE_MS / RETRY_MS),
    tryLock: (name) => take(name, 0).catch(() => undefined),
    [Symbol.asyncDispose]: async () => client.disconnect(),
  };
}

function redisSemaphore(port, ttlMs) {
  const client = new Redis(port);
  const options = { lockTimeout: ttlMs, retryInterval: RETRY_MS, acquireTimeout: PATIENCE_MS };
  return {
    keyOf: (name) => `mutex:${name}`,
    lock: async (name) => {
      const mutex = new Mutex(client, name, options);
      await mutex.acquire();
      return () => mutex.release();
    },
    tryLock: async (name) => {
      const mutex = new Mutex(client, name, { ...options, acquireAttemptsLimit: 1 });
      return (await mutex.tryAcquire()) ? () => mutex.release() : undefined;
    },
    [Symbol.asyncDispose]: async () => client.disconnect(),
  };
}

export function connectRedisson(port, ttlMs) {
  const redisson = new Redisson({ redis: { options: { port } }, lockWatchdogTimeout: BigInt(ttlMs) });
  return Object.assign(redisson, { [Symbol.asyncDispose]: () => redisson.quit() });
}

function nodeRedisson(port, ttlMs) {
  const redisson = connectRedisson(port, ttlMs);
  return {
    keyOf: (name) => name,
    lock: async (name) => {
      const lock = redisson.getLock(name);
      await lock.lock();
      return () => lock.unlock();
    },
    tryLock: async (name) => {
      const lock = redisson.getLock(name);
      return (await lock.tryLock(0n, true)) ? () => lock.unlock() : undefined;
    },
    [Symbol.asyncDispose]: () => redisson[Symbol.asyncDispose](),
  };
}

export const PEERS = { redlock, 'redis-semaphore': redisSemaphore, 'node-redisson': nodeRedisson };
