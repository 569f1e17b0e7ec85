/**
 * ioredis 5 and 6, and iovalkey, by shape. Messages come over a connection of their own, a duplicate of the user's.
 */
import { EngineError } from '../../../core/errors.js';
import { performance, setTimeout } from '../../../core/real-time.js';
import {
  CLUSTER_SUBSCRIBER_NODE_OPTIONS,
  CLUSTER_SUBSCRIBER_OPTIONS,
  type Connection,
  ENDED,
  isAftermath,
  isTimeUp,
  rootOf,
  STRANGER,
  type Subscriber,
  SUBSCRIBER_OPTIONS,
  whenReady,
} from './ioredis-connection.js';
import {
  atMostEvery,
  Channels,
  type ChannelListener,
  explain,
  isHopeless,
  isUnknownCommand,
  LEAVE_MS,
  type RedisPort,
  remembered,
  runCached,
  type Script,
  type Subscription,
} from './port.js';
import { type Address, refusalsOf } from './refusals.js';

export interface IoredisClient extends Connection {
  readonly isCluster?: boolean;
  readonly options?: { readonly keyPrefix?: string | Buffer; readonly redisOptions?: object };
  evalsha(sha1: string, keyCount: number, ...words: string[]): Promise<unknown>;
  eval(text: string, keyCount: number, ...words: string[]): Promise<unknown>;
  duplicate(...overrides: unknown[]): unknown;
}

export function isIoredis(client: object): client is IoredisClient {
  return ['evalsha', 'eval', 'duplicate', 'disconnect', 'subscribe'].every(
    (name) => typeof (client as Record<string, unknown>)[name] === 'function',
  );
}

const REVIVE_MS = 100;
const TOPOLOGY_MS = 1_000;
const STRANDED_MS = 3_000;

export class IoredisPort implements RedisPort {
  readonly cluster: boolean;
  #client: IoredisClient;
  /** Whether the client is ours to close. */
  #owned: boolean;
  /** Where a cluster, or Sentinels, are first asked. */
  readonly #doors: readonly Address[];
  readonly #channels = new Channels();
  readonly #subscriber = remembered(() => this.#subscribe());
  /** Whether the cluster's nodes take subscriptions for their own slots only. */
  #sharded = false;
  /**
   * A subscriber of a node that hangs hears nothing and asks nothing, so it has to be told that the node was replaced;
   * ioredis 5 does not notice that a slot has moved, either. The client can look by itself (slotsRefreshInterval), but
   * then it goes on for ever if it is closed at the wrong moment.
   */
  readonly #checkTopology = atMostEvery(TOPOLOGY_MS, () => this.#ask((subscriber) => subscriber.refreshSlotsCache?.()));

  /**
   * The user's client stays where it is, because other commands may be under way there: from here on we have one of our own. The
   * subscriber says nothing that a replica would refuse, so it has to be told.
   */
  readonly #leave = atMostEvery(LEAVE_MS, () => {
    if (this.cluster || this.#closed) return;
    if (this.#owned) this.#client.disconnect(true);
    else this.#replace();
    this.#ask((subscriber) => subscriber.disconnect(true));
  });

  /** All channels of a subscriber are deaf at once; the one that comes first sees to it. */
  readonly #renewSubscriber = atMostEvery(STRANDED_MS, () => {
    if (this.#closed) return;
    this.#ask((deaf) => {
      this.#abandon(deaf);
      return this.#subscriber.get();
    });
  });

  /** Since when a subscriber of a cluster has refused everything. */
  #strandedSince: number | undefined;

  #closed = false;
  #calls = 0;
  #listening = 0;
  /** Why there is no connection, as the first who tried was told: what calls are told is what came of it. */
  #broken: unknown;
  /** Why a client of ours is of no use, though it is connected: it goes on in database 0 if there is no other. */
  #refusal: unknown;

  /**
   * @param owned whether the client is ours to close.
   * @param doors where a cluster, or Sentinels, are first asked, if we know.
   */
  constructor(client: IoredisClient, owned: boolean, doors: readonly Address[] = []) {
    this.#doors = doors;
    this.cluster = client.isCluster === true;
    this.#client = client;
    this.#owned = owned;
    if (owned) this.#own(client);
  }

  run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const answer = this.#run(script, keys, args)
      .catch((error: unknown) => {
        if (!script.repeatable || !this.#hasEndedUnderUs(error)) throw error;
        return this.#run(script, keys, args);
      })
      .catch((error: unknown) => this.#explain(error));
    return this.#owned ? this.#awake(answer) : answer;
  }

  #run({ sha1, text }: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const words = [...keys, ...args];
    const client = this.#client;
    if (this.#owned && client.status === 'end' && !this.#closed) void client.connect().catch(() => {});
    return runCached(
      client.evalsha(sha1, keys.length, ...words),
      () => client.eval(text, keys.length, ...words),
      this.#leave,
    );
  }

  /**
   * A server that ends idle connections may do so in the very moment in which one is used. For what can't be repeated the core finds
   * out what came of it.
   */
  #hasEndedUnderUs(error: unknown): boolean {
    return this.#owned && !this.cluster && !this.#closed && this.#broken === undefined && isAftermath(error);
  }

  /** A call under way keeps the process alive; a connection does not. */
  async #awake(answer: Promise<unknown>): Promise<unknown> {
    this.#calls += 1;
    if (this.#calls === 1) this.#client.stream?.ref?.();
    try {
      const value = await answer;
      if (this.#refusal !== undefined) explain(this.#refusal);
      return value;
    } finally {
      this.#calls -= 1;
      if (this.#calls === 0) this.#client.stream?.unref?.();
    }
  }

  async #explain(error: unknown): Promise<never> {
    // Behind Sentinel commands wait for a connection until their time is over.
    const isLater = isAftermath(error) || (!this.cluster && isTimeUp(error));
    const known = isLater && this.#broken !== undefined ? this.#broken : error;
    if (!isAftermath(known)) throw known;
    throw (await refusalsOf(this.#doors)) ?? new EngineError(ENDED, { cause: known });
  }

  /**
   * Listens to what happens to a connection of ours. Without a listener ioredis prints errors, and the pauses before it connects
   * anew would keep a process alive that nobody waits for: who does is kept alive by waiting.
   */
  #attend(connection: Connection): void {
    connection.on('error', (error: unknown) => {
      const root = rootOf(error);
      if (this.#broken === undefined || !isAftermath(root)) this.#broken = root;
      // It would go on trying, and keep the process alive by that. The next who asks connects it.
      if (this.#idle && !this.#closed) connection.disconnect();
    });
    connection.on('node error', (error: unknown) => (this.#broken = error));
    connection.on('ready', () => (this.#broken = undefined));
    connection.on('reconnecting', () => connection.reconnectTimeout?.unref?.());
    let greeted = true;
    connection.on('connect', () => (greeted = false));
    connection.on('ready', () => (greeted = true));
    connection.on('close', () => {
      if (!greeted && !isHopeless(this.#broken)) this.#broken = new EngineError(STRANGER, { cause: this.#broken });
      greeted = true;
    });
  }

  /** Nobody asks, and nobody listens. */
  get #idle(): boolean {
    return this.#owned && this.#calls === 0 && this.#listening === 0 && this.#channels.names.length === 0;
  }

  #replace(): void {
    this.#client = this.#client.duplicate({ lazyConnect: false }) as IoredisClient;
    this.#owned = true;
    this.#own(this.#client);
  }

  #own(client: IoredisClient): void {
    this.#attend(client);
    client.on('error', (error: unknown) => {
      if (isHopeless(error)) this.#refusal = error;
    });
    client.on('connect', () => {
      this.#refusal = undefined;
      if (this.#calls === 0) client.stream?.unref?.();
    });
    this.#revive(client);
  }

  /** A failover that is noticed while it connects anew makes ioredis give up for ever. */
  #revive(connection: Connection): void {
    connection.on('end', () => {
      if (this.#closed || this.cluster || this.#idle) return;
      setTimeout(() => void (this.#closed || connection.connect().catch(() => {})), REVIVE_MS).unref();
    });
  }

  async listen(channel: string, listener: ChannelListener): Promise<Subscription> {
    this.#listening += 1;
    try {
      return await this.#listen(channel, listener);
    } finally {
      this.#listening -= 1;
    }
  }

  async #listen(channel: string, listener: ChannelListener): Promise<Subscription> {
    const subscriber = await this.#subscriber.get();
    await whenReady(subscriber).catch((error: unknown) => this.#explain(rootOf(error)));
    // Who has lost its session does not beat.
    if (this.cluster) this.#checkTopology();
    this.#channels.add(channel, listener);
    try {
      const kind = await this.#subscribeTo(subscriber, channel);
      this.#strandedSince = undefined;
      return { kind, confirmed: this.#deafness(), close: () => this.#unsubscribeFrom(channel, kind) };
    } catch (error) {
      this.#channels.remove(channel);
      if (this.#isStranded(error)) {
        this.#abandon(subscriber);
        throw error;
      }
      // The client has noted it, and would subscribe to it for ever, on one node after the other.
      if (this.#sharded) this.#ask(() => subscriber.sunsubscribe!(channel));
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

  async #unsubscribeFrom(channel: string, kind: Subscription['kind']): Promise<void> {
    this.#channels.remove(channel);
    const subscriber = await this.#subscriber.made;
    if (kind === 's') await subscriber?.sunsubscribe!(channel);
    else await subscriber?.unsubscribe(channel);
  }

  /**
   * A cluster client that connects anew while it makes its subscribers' connections stops these, and goes on waiting for
   * them: for ever, with a subscriber for no slot. For a moment that is usual, after a failover.
   */
  #isStranded(error: unknown): boolean {
    if (!(error instanceof Error) || !error.message.startsWith('No sharded subscriber')) return false;
    this.#strandedSince ??= performance.now();
    return performance.now() - this.#strandedSince > STRANDED_MS;
  }

  /** The next who listens makes another, which subscribes to what this one had. */
  #abandon(subscriber: Subscriber): void {
    this.#strandedSince = undefined;
    this.#subscriber.forget();
    subscriber.disconnect();
  }

  /**
   * The same can happen to a subscriber that everybody listens by already, and that nobody asks anything any more. The server
   * notices: it counts no listener, beat after beat.
   */
  #deafness(): Subscription['confirmed'] {
    let deafSince: number | undefined;
    return (heard) => {
      deafSince = heard ? undefined : (deafSince ?? performance.now());
      if (deafSince !== undefined && performance.now() - deafSince > STRANDED_MS) this.#renewSubscriber();
    };
  }

  checkSubscriber(): void {
    if (this.cluster) this.#checkTopology();
    else this.#ask((subscriber) => subscriber.ping());
  }

  #ask(question: (subscriber: Subscriber) => unknown): void {
    void this.#subscriber.made?.then(question).catch(() => {
      // It is connecting anew, or will be after SILENCE_MS.
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    (await this.#subscriber.made?.catch(() => undefined))?.disconnect();
    if (this.#owned) this.#client.disconnect();
  }

  async #subscribe(): Promise<Subscriber> {
    const subscriber = this.cluster ? this.#clusterSubscriber() : this.#singleSubscriber();
    this.#attend(subscriber);
    const message = (channel: string, text: string): void => this.#channels.message(channel, text);
    subscriber.on('message', message);
    subscriber.on('smessage', message);
    if (this.cluster) void this.#inherit(subscriber);
    return subscriber;
  }

  /** What was subscribed to by one that we abandoned. Who is missed by this hears with its next beat. */
  async #inherit(subscriber: Subscriber): Promise<void> {
    const names = this.#channels.names;
    await Promise.allSettled(names.map((name) => this.#subscribeTo(subscriber, name)));
    if (names.length > 0) this.#channels.resumed();
  }

  #singleSubscriber(): Subscriber {
    const subscriber = this.#client.duplicate(SUBSCRIBER_OPTIONS) as Subscriber;
    subscriber.on('connect', () => subscriber.stream?.unref?.());
    subscriber.on('ready', () => void this.#resubscribe(subscriber));
    this.#revive(subscriber);
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
    const { keyPrefix = '', redisOptions } = this.#client.options ?? {};
    const subscriber = this.#client.duplicate([], {
      ...CLUSTER_SUBSCRIBER_OPTIONS,
      redisOptions: { ...redisOptions, ...CLUSTER_SUBSCRIBER_NODE_OPTIONS },
    }) as Subscriber;
    // A hash tag in the user's prefix moves the keys to another slot than the channels, which have no prefix.
    const tagged = keyPrefix.includes('{');
    this.#sharded = 'shardedSubscribers' in subscriber && !tagged;
    for (const event of ['subscribersReady', '+node', '-node']) subscriber.on(event, () => this.#channels.resumed());
    return subscriber;
  }
}
