/**
 * ioredis 5 and 6, and iovalkey, by shape. Messages come over a connection of their own, a duplicate of the user's.
 */
import {
  Channels,
  type ChannelListener,
  isUnknownCommand,
  type RedisPort,
  runCached,
  type Script,
  type Subscription,
} from './port.js';

export interface IoredisClient {
  readonly isCluster?: boolean;
  evalsha(sha1: string, keyCount: number, ...words: string[]): Promise<unknown>;
  eval(text: string, keyCount: number, ...words: string[]): Promise<unknown>;
  duplicate(...overrides: unknown[]): unknown;
  disconnect(): void;
}

interface Subscriber {
  disconnect(): void;
  ping(): Promise<unknown>;
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(...channels: string[]): Promise<unknown>;
  ssubscribe?(...channels: string[]): Promise<unknown>;
  sunsubscribe?(...channels: string[]): Promise<unknown>;
  on(event: string, listener: (...args: string[]) => void): unknown;
}

export function isIoredis(client: object): client is IoredisClient {
  return ['evalsha', 'eval', 'duplicate', 'disconnect', 'subscribe'].every(
    (name) => typeof (client as Record<string, unknown>)[name] === 'function',
  );
}

export class IoredisPort implements RedisPort {
  readonly cluster: boolean;
  readonly #client: IoredisClient;
  readonly #owned: boolean;
  readonly #channels = new Channels();
  #subscriber: Promise<Subscriber> | undefined;
  /** Whether the cluster's nodes take subscriptions for their own slots only. */
  #sharded = false;

  /** @param owned whether the client is ours to close. */
  constructor(client: IoredisClient, owned: boolean) {
    this.cluster = client.isCluster === true;
    this.#client = client;
    this.#owned = owned;
  }

  run({ sha1, text }: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const words = [...keys, ...args];
    return runCached({
      byHash: () => this.#client.evalsha(sha1, keys.length, ...words),
      byText: () => this.#client.eval(text, keys.length, ...words),
    });
  }

  async listen(channel: string, listener: ChannelListener): Promise<Subscription> {
    const subscriber = await this.#subscribed();
    this.#channels.add(channel, listener);
    try {
      const kind = await this.#subscribeTo(subscriber, channel);
      return { kind, close: () => this.#unsubscribeFrom(subscriber, channel, kind) };
    } catch (error) {
      this.#channels.remove(channel);
      throw error;
    }
  }

  async #subscribeTo(subscriber: Subscriber, channel: string): Promise<Subscription['kind']> {
    if (this.#sharded) {
      try {
        await subscriber.ssubscribe!(channel);
        return 's';
      } catch (error) {
        if (!isUnknownCommand(error)) throw error;
        this.#sharded = false;
      }
    }
    await subscriber.subscribe(channel);
    return 'p';
  }

  async #unsubscribeFrom(subscriber: Subscriber, channel: string, kind: Subscription['kind']): Promise<void> {
    this.#channels.remove(channel);
    if (kind === 's') await subscriber.sunsubscribe!(channel);
    else await subscriber.unsubscribe(channel);
  }

  checkSubscriber(): void {
    if (this.cluster) return;
    void this.#subscriber
      ?.then((subscriber) => subscriber.ping())
      .catch(() => {
        // It is connecting anew, or will be after SILENCE_MS.
      });
  }

  async close(): Promise<void> {
    (await this.#subscriber?.catch(() => undefined))?.disconnect();
    if (this.#owned) this.#client.disconnect();
  }

  #subscribed(): Promise<Subscriber> {
    this.#subscriber ??= this.#subscribe().catch((error: unknown) => {
      this.#subscriber = undefined;
      throw error;
    });
    return this.#subscriber;
  }

  async #subscribe(): Promise<Subscriber> {
    const subscriber = this.cluster ? this.#clusterSubscriber() : this.#singleSubscriber();
    // Without a listener ioredis prints them. That it can't connect is told by the calls that fail.
    subscriber.on('error', () => {});
    const message = (channel: string, text: string): void => this.#channels.message(channel, text);
    subscriber.on('message', message);
    subscriber.on('smessage', message);
    return subscriber;
  }

  #singleSubscriber(): Subscriber {
    const subscriber = this.#client.duplicate(SUBSCRIBER_OPTIONS) as Subscriber;
    subscriber.on('ready', () => void this.#resubscribe(subscriber));
    return subscriber;
  }

  async #resubscribe(subscriber: Subscriber): Promise<void> {
    const names = this.#channels.names;
    if (names.length === 0) return;
    try {
      await subscriber.subscribe(...names);
      this.#channels.resumed();
    } catch {
      // The connection is lost again: the next one begins here, too.
    }
  }

  /**
   * The cluster client subscribes again by itself, on another node if need be. It does not say when that is done, so a
   * message may be missed; the beat finds what it was about.
   */
  #clusterSubscriber(): Subscriber {
    const subscriber = this.#client.duplicate([], CLUSTER_SUBSCRIBER_OPTIONS) as Subscriber;
    this.#sharded = 'shardedSubscribers' in subscriber;
    for (const event of ['subscribersReady', '+node', '-node']) subscriber.on(event, () => this.#channels.resumed());
    return subscriber;
  }
}

/** A PING is all that a subscriber's connection is asked: without an answer for so long it is dead. */
const SILENCE_MS = 3_000;

const SUBSCRIBER_OPTIONS = {
  lazyConnect: true,
  enableOfflineQueue: true,
  keyPrefix: '',
  // We do it ourselves: only then do we know when no message is missed any more.
  autoResubscribe: false,
  // It must come back whenever the server does.
  maxRetriesPerRequest: null,
  autoResendUnfulfilledCommands: true,
  commandTimeout: undefined,
  retryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
  socketTimeout: SILENCE_MS,
};

const CLUSTER_SUBSCRIBER_OPTIONS = {
  lazyConnect: false,
  enableOfflineQueue: true,
  shardedSubscribers: true,
  keyPrefix: '',
};
