/** The lock of the next chapters: one command, with an expiry and its holder's id. */
import type { Redis } from 'ioredis';

export async function lock(redis: Redis, key: string, id: string, ttlMs: number): Promise<boolean> {
  return (await redis.set(key, id, 'PX', ttlMs, 'NX')) === 'OK';
}
