/**
 * A fence on Redis. There is no transaction to stand in, so every access is a script that first judges the token and then
 * does its work, in one step that nothing comes between. The first access of a holder, which may be a read, closes the
 * fence to older ones.
 *
 * A fence is one key, a hash: the highest token that a reader (`r`) and a writer (`w`) has shown, as text of 19 digits,
 * because Lua's numbers have only 53 bits. It lives until somebody deletes it. On a cluster it must be in the slot of the keys
 * that it protects: it has the resource's name as its hash tag, `holdfast_fence:{account:1}`, so that
 * `{account:1}:balance` lies beside it.
 *
 * What Redis forgets, the fence forgets: a lost write of a failover, an evicted key, FLUSHALL. Then an older token passes,
 * as it would with any other data in that server.
 */
import { show } from '../core/duration.js';
import { ConfigError, EngineError, quote, StaleTokenError } from '../core/errors.js';
import type { Fence } from '../core/engine.js';
import { portOf } from '../engines/redis/client/port-of.js';
import { defineScript, type RedisPort, type Script } from '../engines/redis/client/port.js';
import type { Lease } from '../index.js';
import { fencedScript, newestIn, readingScript } from './lua.js';
import { checkResource, type OpenOptions, Presenter } from './presented.js';

export interface RedisFenceOptions {
  /** The key that a resource's fence is kept in. Default: `holdfast_fence:{resource}`. */
  readonly key?: ((resource: string) => string) | undefined;
}

/** No lock has such a key: what begins with `holdfast_` is none. Whoever frees a lock would erase the fence. */
export function fenceKey(resource: string): string {
  return `holdfast_fence:{${resource}}`;
}

/** KEYS: the fence. Nothing but the judgement. */
const OPEN = defineScript(fencedScript('return 1'));
/** KEYS: the fence, the key. Answer: its value, or nil. */
const GET = defineScript(fencedScript(`return redis.call('GET', KEYS[1])`));
/** KEYS: the fence, the key. ARGV: token, mode, value, then options of SET. */
const SET = defineScript(fencedScript(`return redis.call('SET', KEYS[1], unpack(ARGV))`));

export class RedisFence {
  readonly #port: RedisPort;
  readonly #keyOf: (resource: string) => string;
  readonly #presenter = new Presenter();

  constructor(client: object, options: RedisFenceOptions) {
    this.#port = portOf(client);
    this.#keyOf = options.key ?? fenceKey;
  }

  /**
   * Shows the token and gives what may be done with it. Throws a StaleTokenError if the lease was overtaken; so does
   * everything that is done with the open fence later.
   *
   *     const account = await fence(redis).open('account:1', lease);
   *     await account.set('{account:1}:balance', `${Number(await account.get('{account:1}:balance')) + 5}`);
   */
  async open(resource: string, shown: Lease | bigint, options?: OpenOptions): Promise<OpenRedisFence> {
    checkResource(resource);
    const fence = this.#presenter.present(shown, options);
    const open = new OpenRedisFence(this.#port, resource, this.#keyOf(resource), fence);
    await open.check();
    return open;
  }
}

/** A fence that a token has been shown to. Each call shows it again, in the same step as its work. */
export class OpenRedisFence {
  readonly #port: RedisPort;
  readonly #resource: string;
  readonly #key: string;
  readonly #fence: Fence;
  readonly #scripts = new Map<string, Script>();

  constructor(port: RedisPort, resource: string, key: string, fence: Fence) {
    this.#port = port;
    this.#resource = resource;
    this.#key = key;
    this.#fence = fence;
  }

  /** Throws a StaleTokenError if somebody newer has come. */
  async check(): Promise<void> {
    await this.#run(OPEN, [], []);
  }

  async get(key: string): Promise<string | null> {
    try {
      return (await this.#run(GET, [key], [])) as string | null;
    } catch (error) {
      if (!says(error, 'WRONGTYPE')) throw error;
      throw new ConfigError(`${quote(key)} is of another type than text. Read it with eval.`, { cause: error });
    }
  }

  /** Only with an exclusive lease. `ttlMs` makes the value expire, not the fence. */
  async set(key: string, value: string, { ttlMs }: { readonly ttlMs?: number } = {}): Promise<void> {
    if (this.#fence.mode === 'read') throw this.#mayOnlyRead();
    if (typeof value !== 'string') throw new ConfigError(`A value is a text; got ${show(value)}.`);
    if (ttlMs !== undefined && !(Number.isSafeInteger(ttlMs) && ttlMs > 0))
      throw new ConfigError(`ttlMs is a whole number of milliseconds from 1 on; got ${show(ttlMs)}.`);
    await this.#run(SET, [key], [value, ...(ttlMs === undefined ? [] : ['PX', `${ttlMs}`])]);
  }

  /**
   * A script of yours, with its own KEYS and ARGV, that runs only if the token is not stale. With a read lease it can only read,
   * and needs Redis 7 or Valkey.
   *
   *     await account.eval(`return redis.call('INCRBY', KEYS[1], ARGV[1])`, ['{account:1}:balance'], ['5']);
   */
  async eval(script: string, keys: readonly string[] = [], args: readonly string[] = []): Promise<unknown> {
    const behindFence = this.#fence.mode === 'read' ? readingScript : fencedScript;
    let fenced = this.#scripts.get(script);
    if (!fenced) this.#scripts.set(script, (fenced = defineScript(behindFence(script))));
    try {
      return await this.#run(fenced, keys, args);
    } catch (error) {
      throw says(error, 'Write commands are not allowed from read-only scripts') ? this.#mayOnlyRead(error) : error;
    }
  }

  async #run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const { token, mode } = this.#fence;
    try {
      return await this.#port.run(script, [this.#key, ...keys], [digits(token), mode, ...args]);
    } catch (error) {
      const newest = newestIn(error);
      if (newest !== undefined) throw new StaleTokenError(this.#resource, token, newest);
      if (!says(error, 'HOLDFAST_NO_FENCE')) throw error;
      throw new EngineError(`The key ${quote(this.#key)} is no fence: somebody else has written there.`, {
        retryable: false,
        cause: error,
      });
    }
  }

  #mayOnlyRead(cause?: unknown): ConfigError {
    const message = `A read lease can't write what ${quote(this.#resource)} protects. Take the write lock.`;
    return new ConfigError(message, cause === undefined ? undefined : { cause });
  }
}

function says(error: unknown, words: string): boolean {
  return error instanceof Error && error.message.includes(words);
}

function digits(token: bigint): string {
  return token.toString().padStart(19, '0');
}
