/** What we need of the connections of ioredis, how those that listen are set, and what their errors mean. */
import { EngineError } from '../../../core/errors.js';
import { orStranger } from '../../../kit/stranger.js';

export interface Connection {
  readonly status?: string;
  /** Runs before the next try to connect. */
  readonly reconnectTimeout?: { unref?(): void } | null;
  /** Its socket; clusters have several, and do not show them. */
  readonly stream?: { ref?(): void; unref?(): void } | undefined;
  connect(): Promise<unknown>;
  disconnect(reconnect?: boolean): void;
  on(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

export interface Subscriber extends Connection {
  ping(): Promise<unknown>;
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(...channels: string[]): Promise<unknown>;
  ssubscribe?(...channels: string[]): Promise<unknown>;
  sunsubscribe?(...channels: string[]): Promise<unknown>;
  /** Clusters have it. */
  refreshSlotsCache?(): void;
}

/** Rejects with what stands in the way, so that the caller hears it: commands would wait for ever, and say nothing. */
export function whenReady(subscriber: Subscriber): Promise<void> {
  if (subscriber.status === 'ready') return Promise.resolve();
  if (subscriber.status === 'wait' || subscriber.status === 'end') void subscriber.connect().catch(() => {});
  return new Promise((resolve, reject) => {
    const settle = (error?: Error): void => {
      subscriber.off('ready', onReady);
      subscriber.off('error', settle);
      subscriber.off('close', onClose);
      if (error) reject(error);
      else resolve();
    };
    const onReady = (): void => settle();
    const onClose = (): void => settle(new Error('Connection is closed.'));
    subscriber.on('ready', onReady);
    subscriber.on('error', settle);
    subscriber.on('close', onClose);
  });
}

/** In the place of what ioredis says, which is about its own options. */
export const ENDED =
  'The connection was ended before the answer had come, by the server or by something in between. If it happens often, look at ' +
  'the setting `timeout` of Redis, and at the idle limits of proxies.';

export const STRANGER = `The connection was closed before Redis had answered. ${orStranger('Redis, with or without TLS as in the URL,')}`;

/** What calls are told when there is no connection, or was none for too long. */
export function isAftermath(error: unknown): boolean {
  return (
    error instanceof Error &&
    (error.name === 'MaxRetriesPerRequestError' ||
      /^(Connection is closed|None of startup nodes|All sentinels are unreachable)/.test(error.message))
  );
}

export function isTimeUp(error: unknown): boolean {
  return error instanceof Error && error.message === 'Command timed out';
}

/** A cluster's client hides it in an error about all of its nodes. */
export function rootOf(error: unknown): unknown {
  const root = (error as { lastNodeError?: unknown } | null)?.lastNodeError ?? error;
  if (!(root instanceof Error) || !/Unknown RESP type|Protocol error, got/.test(root.message)) return root;
  return new EngineError(`What answers there does not speak as Redis does. ${orStranger('Redis')}`, { cause: root });
}

/** A PING is all that a subscriber's connection is asked: without an answer for so long it is dead. */
const SILENCE_MS = 3_000;

export const SUBSCRIBER_OPTIONS = {
  lazyConnect: true,
  enableOfflineQueue: true,
  keyPrefix: '',
  // It would tell the server its name on every connection, and keep what it could not tell for ever.
  disableClientInfo: true,
  // We do it ourselves: only then do we know when no message is missed any more.
  autoResubscribe: false,
  // It must come back whenever the server does.
  maxRetriesPerRequest: null,
  autoResendUnfulfilledCommands: true,
  commandTimeout: undefined,
  retryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
  socketTimeout: SILENCE_MS,
};

export const CLUSTER_SUBSCRIBER_OPTIONS = {
  lazyConnect: false,
  enableOfflineQueue: true,
  shardedSubscribers: true,
  keyPrefix: '',
};

export const CLUSTER_SUBSCRIBER_NODE_OPTIONS = {
  // It may also stand here, and would be taken from here.
  keyPrefix: '',
  // The client tells it to nobody who listens when it has left the node meanwhile, and then it is printed.
  socketTimeout: undefined,
};
