import type { Clock } from '../../core/clock.js';
import type { Engine, EngineSetup, OpenOptions, Session, SessionListener } from '../../core/engine.js';
import { SlotSession } from '../../kit/slot-session.js';
import { addressOf, Connection } from './client/connection.js';
import { MemcachedSlots } from './protocol.js';
import type { MemcachedUrl } from './url.js';

export class MemcachedEngine implements Engine {
  readonly #url: MemcachedUrl;
  readonly #namespace: string;
  readonly #clock: Clock;
  readonly #connections = new Map<string, Connection>();

  constructor(url: MemcachedUrl, { namespace, clock }: EngineSetup) {
    this.#url = url;
    this.#namespace = namespace;
    this.#clock = clock;
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const connection = this.#connection(options.realm);
    // There is nothing to open. But who can't reach the server, or is not let in, should hear it now.
    await connection.call('mn');
    const store = new MemcachedSlots({
      connection,
      namespace: this.#namespace,
      clock: this.#clock,
      ttlMs: options.ttlMs,
    });
    return new SlotSession({ options, listener, clock: this.#clock, store: () => store });
  }

  async ping(): Promise<void> {
    await Promise.all(Array.from(this.#connections.values(), (connection) => connection.call('mn')));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections.values()) connection.close();
  }

  #connection(realm: string): Connection {
    const known = this.#connections.get(realm);
    if (known) return known;
    const { servers, user, password } = this.#url;
    // ready() asks for no name in particular.
    const server = servers.find((candidate) => addressOf(candidate) === realm) ?? servers[0]!;
    const connection = new Connection({ server, user, password, clock: this.#clock });
    this.#connections.set(realm, connection);
    return connection;
  }
}
