/**
 * node-redis (`redis`, `@redis/client`) 5 and 6, by shape. A single client is duplicated for messages; clusters and
 * sentinels have connections for them already.
 */
import { ConfigError } from '../../../core/errors.js';
import {
  atMostEvery,
  Channels,
  type ChannelListener,
  isUnknownCommand,
  LEAVE_MS,
  type RedisPort,
  remembered,
  runCached,
  type Script,
  type Subscription,
} from './port.js';

interface EvalOptions {
  readonly keys: readonly string[];
  readonly arguments: readonly string[];
}

type Receive = (message: string) => void;
type Listen = (channel: string, listener: Receive) => Promise<unknown>;

interface Messages {
  subscribe: Listen;
  unsubscribe: (channel: string) => Promise<unknown>;
  sSubscribe: Listen;
  sUnsubscribe: (channel: string) => Promise<unknown>;
  on(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
  getMaxListeners(): number;
  setMaxListeners(count: number): unknown;
}

interface Commands {
  evalSha(sha1: string, options: EvalOptions): Promise<unknown>;
  eval(text: string, options: EvalOptions): Promise<unknown>;
}

export interface NodeRedisClient extends Messages, Commands {
  readonly isOpen?: boolean;
  /** Clusters have it. */
  readonly masters?: unknown;
  readonly options?: { readonly socket?: object };
  /** Single clients have it; what it makes is not connected. */
  duplicate?(overrides: unknown): Messages & Commands & { connect(): Promise<unknown>; destroy(): void };
}

export function isNodeRedis(client: object): client is NodeRedisClient {
  return ['evalSha', 'eval', 'subscribe', 'sSubscribe', 'on'].every(
    (name) => typeof (client as Record<string, unknown>)[name] === 'function',
  );
}

/** Events after which messages may have been missed. */
const RESUMPTIONS = ['ready', 'node-ready', 'topology-change'];

/** How often a silent subscriber is asked whether it lives, and after what silence it is connected anew. */
const PING_MS = 2_000;
const SILENCE_MS = 6_000;
const RENEW_MS = 1_000;

export class NodeRedisPort implements RedisPort {
  readonly cluster: boolean;
  readonly #client: NodeRedisClient;
  readonly #channels = new Channels();
  readonly #shardedChannels = new Map<string, Receive>();
  readonly #resumed = (): void => this.#channels.resumed();
  readonly #messages = remembered(() => this.#connect());
  #destroy: (() => void) | undefined;
  /** What we send commands over: the user's client, until it turned out to be connected to a replica. */
  #commands: Commands;
  #destroyCommands: (() => void) | undefined;
  #closed = false;
  /**
   * The user's client stays where it is, because other commands may be under way there: from here on we have one of our own. The
   * subscriber says nothing that a replica would refuse, so it is replaced, too.
   */
  readonly #leave = atMostEvery(LEAVE_MS, () => {
    if (this.cluster || this.#closed || !this.#client.duplicate) return;
    const client = this.#client.duplicate({});
    // An error without a listener ends the process. That it can't connect is told by the calls that fail.
    client.on('error', () => {});
    client.connect().catch(() => {});
    this.#destroyCommands?.();
    this.#destroyCommands = () => client.destroy();
    this.#commands = client;
    if (this.#messages.made) void this.#replaceSubscriber();
  });
  #sharded: boolean;
  /**
   * When a slot moves, its node ends the subscriptions. Version 5 drops them, version 6 moves them unless the node it asks
   * has not heard of the move. To subscribe again costs nothing where the subscription stands: the client knows it.
   */
  readonly #renew = atMostEvery(RENEW_MS, () => {
    for (const [channel, receive] of this.#shardedChannels) {
      this.#client.sSubscribe(channel, receive).catch(() => {
        // The next beat tries again.
      });
    }
  });

  constructor(client: NodeRedisClient) {
    this.cluster = client.masters !== undefined;
    this.#client = client;
    this.#commands = client;
    this.#sharded = this.cluster;
  }

  run({ sha1, text }: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const options = { keys, arguments: args };
    const client = this.#commands;
    return runCached(client.evalSha(sha1, options), () => client.eval(text, options), this.#leave);
  }

  async listen(channel: string, listener: ChannelListener): Promise<Subscription> {
    const messages = await this.#messages.get();
    this.#channels.add(channel, listener);
    try {
      const kind = await this.#subscribeTo(messages, channel);
      return {
        kind,
        confirmed: (heard) => void (heard || this.#subscribeAnew(channel)),
        close: () => this.#unsubscribeFrom(channel, kind),
      };
    } catch (error) {
      this.#channels.remove(channel);
      throw error;
    }
  }

  checkSubscriber(): void {
    // Elsewhere the client does it: pingInterval.
    if (this.cluster) this.#renew();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#shardedChannels.clear();
    this.#destroyCommands?.();
    const messages = await this.#messages.made?.catch(() => undefined);
    if (messages) {
      for (const event of RESUMPTIONS) messages.off(event, this.#resumed);
      allowListeners(messages, -1);
    }
    this.#destroy?.();
  }

  async #subscribeTo(messages: Messages, channel: string): Promise<Subscription['kind']> {
    const receive: Receive = (text) => this.#channels.message(channel, text);
    if (this.#sharded) {
      try {
        await messages.sSubscribe(channel, receive);
        this.#shardedChannels.set(channel, receive);
        return 's';
      } catch (error) {
        if (!isUnknownCommand(error)) throw error;
        this.#sharded = false;
      }
    }
    await messages.subscribe(channel, receive);
    return 'p';
  }

  /** What the old one was subscribed to, and whatever was told there meanwhile is looked up. */
  async #replaceSubscriber(): Promise<void> {
    const destroy = this.#destroy;
    this.#messages.forget();
    try {
      const messages = await this.#messages.get();
      await Promise.all(this.#channels.names.map((name) => this.#subscribeTo(messages, name)));
      this.#channels.resumed();
    } catch {
      // Who listens next makes another; beats find what is missed until then.
    } finally {
      destroy?.();
    }
  }

  /** The client believes that it is subscribed, and would send nothing. */
  async #subscribeAnew(channel: string): Promise<void> {
    const receive = this.#shardedChannels.get(channel);
    if (!receive) return;
    try {
      await this.#client.sUnsubscribe(channel);
      if (this.#shardedChannels.has(channel)) await this.#client.sSubscribe(channel, receive);
    } catch {
      // The next beat tries again.
    }
  }

  async #unsubscribeFrom(channel: string, kind: Subscription['kind']): Promise<void> {
    this.#channels.remove(channel);
    this.#shardedChannels.delete(channel);
    try {
      const messages = await this.#messages.made;
      if (kind === 's') await messages?.sUnsubscribe(channel);
      else await messages?.unsubscribe(channel);
    } catch {
      // A cluster's client closes a connection without subscriptions, and rejects if two of them end at once.
    }
  }

  async #connect(): Promise<Messages> {
    const messages = await this.#subscriber();
    allowListeners(messages, 1);
    for (const event of RESUMPTIONS) messages.on(event, this.#resumed);
    return messages;
  }

  async #subscriber(): Promise<Messages> {
    if (this.#client.isOpen === false)
      throw new ConfigError('This Redis client is not connected. Call `await client.connect()` before its first use.');
    if (this.cluster || !this.#client.duplicate) return this.#client;
    const socket = {
      ...this.#client.options?.socket,
      socketTimeout: SILENCE_MS,
      // By default the client gives up for ever after a silence. A subscriber must come back whenever the server does.
      reconnectStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
    };
    const subscriber = this.#client.duplicate({ pingInterval: PING_MS, socket });
    // An error without a listener ends the process. That it can't connect is told by the calls that fail.
    subscriber.on('error', () => {});
    this.#destroy = () => subscriber.destroy();
    await subscriber.connect();
    return subscriber;
  }
}

/** Many engines may share the user's client: no warning because of ours. 0 is no limit at all. */
function allowListeners(messages: Messages, more: 1 | -1): void {
  const limit = messages.getMaxListeners();
  if (limit > 0) messages.setMaxListeners(limit + more);
}
