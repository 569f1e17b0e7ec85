/** The least that Redis can do: SET NX, and a script that deletes the key if it is still ours. Who finds it taken polls. */
import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import type { Redis } from 'ioredis';

const DELETE_OWN = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
const TTL_MS = 10_000;
const POLL_MS = 10;

export class RawLocks {
  readonly #client: Redis;
  readonly #sha1: string;

  private constructor(client: Redis, sha1: string) {
    this.#client = client;
    this.#sha1 = sha1;
  }

  static async open(client: Redis): Promise<RawLocks> {
    return new RawLocks(client, String(await client.script('LOAD', DELETE_OWN)));
  }

  async use(key: string): Promise<void> {
    const id = randomUUID();
    while ((await this.#client.set(key, id, 'PX', TTL_MS, 'NX')) === null) await setTimeout(POLL_MS);
    await this.#client.evalsha(this.#sha1, 1, key, id);
  }
}
