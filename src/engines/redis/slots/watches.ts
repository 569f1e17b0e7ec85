import type { SlotWatch } from '../../../kit/slot-store.js';
import type { RedisPort, Subscription } from '../client/port.js';

/** In place of a message: the connection was lost and is back. */
export const MISSED = '';

interface Watched {
  readonly listeners: Set<(text: string) => void>;
  readonly subscription: Promise<Subscription>;
}

/** Who waits for a message on which channel: one subscription, however many wait, given up after the last of them. */
export class SlotWatches {
  readonly #port: RedisPort;
  readonly #channels = new Map<string, Watched>();
  /** Unsubscribing that is under way, or a new subscription could be ended by it. */
  readonly #closing = new Map<string, Promise<void>>();

  constructor(port: RedisPort) {
    this.#port = port;
  }

  /** `heard` gets the text, or MISSED when there may have been messages. */
  async watch(channel: string, heard: (text: string) => void): Promise<SlotWatch> {
    const watched = this.#channels.get(channel) ?? this.#open(channel);
    // Two waiters may hand in the same function.
    const listener = (text: string): void => heard(text);
    watched.listeners.add(listener);
    const close = async (): Promise<void> => {
      if (watched.listeners.delete(listener) && watched.listeners.size === 0) await this.#close(channel, watched);
    };
    try {
      await watched.subscription;
    } catch (error) {
      await close();
      throw error;
    }
    return { close };
  }

  #open(channel: string): Watched {
    const listeners = new Set<(text: string) => void>();
    const tell = (text: string): void => {
      for (const listener of listeners) listener(text);
    };
    const before = this.#closing.get(channel) ?? Promise.resolve();
    const subscription = before.then(() => this.#port.listen(channel, { message: tell, resumed: () => tell(MISSED) }));
    const watched: Watched = { listeners, subscription };
    this.#channels.set(channel, watched);
    return watched;
  }

  async #close(channel: string, watched: Watched): Promise<void> {
    if (this.#channels.get(channel) === watched) this.#channels.delete(channel);
    const closing = watched.subscription
      .then((subscription) => subscription.close())
      .catch(() => {
        // It never was, or its connection is gone and it with it.
      })
      .finally(() => {
        if (this.#closing.get(channel) === closing) this.#closing.delete(channel);
      });
    this.#closing.set(channel, closing);
    await closing;
  }
}
