/** Real servers, started when a chapter first asks for them, on loopback, and stopped with the program. */
import { startMariadb } from '../../test/servers/mariadb.js';
import { startRedis } from '../../test/servers/redis.js';
import type { Server } from '../../test/servers/server.js';
import { startZooKeeper } from '../../test/servers/zookeeper.js';

const START = { redis: () => startRedis(), mariadb: () => startMariadb(), zookeeper: () => startZooKeeper() };

/** Chapters that kill their server start one of their own. */
export class Servers implements AsyncDisposable {
  readonly #started = new Map<keyof typeof START, Promise<Server>>();

  get(kind: keyof typeof START): Promise<Server> {
    const started = this.#started.get(kind) ?? START[kind]();
    this.#started.set(kind, started);
    return started;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // One that did not start has told so already.
    const stopped = [...this.#started.values()].map((starting) => starting.then((server) => server.stop()));
    await Promise.allSettled(stopped);
  }
}
