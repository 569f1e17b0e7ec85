/**
 * What the engine needs of a Redis client: a few functions, so that it works on the client that the user has. Found by
 * shape: ioredis and iovalkey in ioredis.ts, node-redis in node-redis.ts.
 */
import { createHash } from 'node:crypto';
import { EngineError, sentence } from '../../../core/errors.js';
import { performance } from '../../../core/real-time.js';
import { quietly } from '../../../kit/message.js';

export interface RedisPort {
  readonly cluster: boolean;
  run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown>;
  /** Resolves when the server has confirmed the subscription. */
  listen(channel: string, listener: ChannelListener): Promise<Subscription>;
  /** Makes sure that a subscriber whose connection is dead notices it. Called with every beat. */
  checkSubscriber(): void;
  /** Closes what we opened ourselves. */
  close(): Promise<void>;
}

export interface ChannelListener {
  message(text: string): void;
  /** The connection was lost and is back: messages may have been missed. */
  resumed(): void;
}

export interface Subscription {
  /** How to reach it: `s` with SPUBLISH, `p` with PUBLISH. */
  readonly kind: 's' | 'p';
  /** What the server says with a beat: whether anybody listens there. Clients of clusters lose subscriptions without a word. */
  confirmed(heard: boolean): void;
  close(): Promise<void>;
}

export interface Script {
  readonly text: string;
  readonly sha1: string;
  /** Run a second time, it does and answers the same. */
  readonly repeatable?: boolean;
}

export function defineScript(text: string): Script {
  return { text, sha1: createHash('sha1').update(text).digest('hex') };
}

export function defineRepeatable(text: string): Script {
  return { ...defineScript(text), repeatable: true };
}

/**
 * By its hash; the server forgets scripts when it restarts, fails over or is told to, and then it gets the text.
 *
 * @param leave called when the server turns out to be a replica: its connections are of no use.
 */
export function runCached(
  byHash: Promise<unknown>,
  byText: () => Promise<unknown>,
  leave: () => void,
): Promise<unknown> {
  const failed = (error: unknown): never => {
    if (isDemoted(error)) leave();
    return explain(error);
  };
  return byHash.catch((error: unknown) =>
    error instanceof Error && error.message.startsWith('NOSCRIPT') ? byText().catch(failed) : failed(error),
  );
}

/** Redis 6 has it in the middle of what went wrong with a script. */
const DEMOTED = /(^|-)(READONLY|MASTERDOWN)\b/;

/**
 * Whether a server that was a primary says that it is a replica. After a switch-over behind a stable address it goes on serving the
 * connections that it has; new ones find its successor.
 */
function isDemoted(error: unknown): boolean {
  return error instanceof Error && DEMOTED.test(error.message);
}

/** A server that was demoted answers everything with the same error until it is left; once is enough. */
export const LEAVE_MS = 500;

const HOPELESS = /^(NOAUTH|WRONGPASS|NOPERM|ERR invalid password|ERR (DB index|invalid DB)|ERR unknown command)/i;

/** Whether the server has said no in a way that asking again can't change: rights, credentials, a database it lacks. */
export function isHopeless(error: unknown): boolean {
  return error instanceof Error && HOPELESS.test(error.message);
}

export function explain(error: unknown): never {
  if (isDemoted(error))
    throw new EngineError(
      `This Redis server is a read-only replica now. A new connection may find its successor: ${(error as Error).message}`,
      { cause: error },
    );
  if (!isHopeless(error)) throw error;
  throw new EngineError(
    `Redis refuses: ${sentence((error as Error).message)} Look at the user, the password, the database and the rights (docs/engines/redis.md).`,
    { cause: error, retryable: false },
  );
}

/** Sharded messages came with Redis 7. */
export function isUnknownCommand(error: unknown): boolean {
  return error instanceof Error && /^ERR unknown command/i.test(error.message);
}

/** Who listens to which channel of one subscriber. */
export class Channels {
  readonly #listeners = new Map<string, ChannelListener>();

  get names(): string[] {
    return [...this.#listeners.keys()];
  }

  add(channel: string, listener: ChannelListener): void {
    this.#listeners.set(channel, listener);
  }

  remove(channel: string): void {
    this.#listeners.delete(channel);
  }

  message(channel: string, text: string): void {
    quietly(() => this.#listeners.get(channel)?.message(text));
  }

  resumed(): void {
    for (const listener of this.#listeners.values()) quietly(() => listener.resumed());
  }
}

/** Made once, with the first call; anew after a failure. */
export function remembered<T>(make: () => Promise<T>): Remembered<T> {
  let made: Promise<T> | undefined;
  return {
    get: () => {
      made ??= make().catch((error: unknown) => {
        made = undefined;
        throw error;
      });
      return made;
    },
    get made() {
      return made;
    },
    forget: () => {
      made = undefined;
    },
  };
}

interface Remembered<T> {
  get(): Promise<T>;
  readonly made: Promise<T> | undefined;
  /** The next who asks gets another. */
  forget(): void;
}

/** What every beat of every session asks for, but not more often than this. */
export function atMostEvery(ms: number, run: () => void): () => void {
  let last = Number.NEGATIVE_INFINITY;
  return () => {
    const now = performance.now();
    if (now - last < ms) return;
    last = now;
    run();
  };
}
