/** Independent Redis servers for Redlock, each with a clock that can jump and a proxy for each of its users. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { type ClockShim, clockShim } from '../../servers/clock-shim.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { startGroup, type ServerGroup } from '../../servers/server-group.js';
import type { Server } from '../../servers/server.js';

export interface RedlockNode {
  readonly server: Server;
  /** Absent where there is no C compiler. */
  readonly clock: ClockShim | undefined;
  /** Kills it and starts it again with what it had on disk, which is everything. */
  restart(): Promise<void>;
  /** Takes its memory from it while it does not run. */
  readonly forget: () => Promise<void>;
  /** Kills it and starts it again without its memory. */
  restartEmpty(): Promise<void>;
}

export class RedlockNodes implements AsyncDisposable {
  readonly nodes: readonly RedlockNode[];
  readonly #group: ServerGroup;
  readonly #clients: Redis[] = [];
  readonly #proxies: FaultProxy[] = [];

  static start(count: number): Promise<RedlockNodes> {
    return startGroup(async (group) => {
      const clocks = await Promise.all(Array.from({ length: count }, () => clockShim()));
      const args = ['--appendonly', 'yes', '--appendfsync', 'always'];
      const servers = await group.add(clocks.map((clock) => startRedis({ args, ...(clock && { env: clock.env }) })));
      return new RedlockNodes(
        group,
        servers.map((server, at) => nodeOf(server, clocks[at])),
      );
    });
  }

  private constructor(group: ServerGroup, nodes: readonly RedlockNode[]) {
    this.#group = group;
    this.nodes = nodes;
  }

  get ports(): number[] {
    return this.nodes.map(({ server }) => server.port);
  }

  get urls(): string[] {
    return this.ports.map((port) => `redis://${LOOPBACK}:${port}`);
  }

  /** Clients of a user's own, closed in the end. They give up at once on a server that is gone. */
  clients(ports = this.ports): Redis[] {
    const clients = ports.map((port) => {
      const client = new Redis({ host: LOOPBACK, port, maxRetriesPerRequest: 0, retryStrategy: () => 50 });
      client.on('error', () => {});
      return client;
    });
    this.#clients.push(...clients);
    return clients;
  }

  /** One to each node, for one user. */
  async proxies(): Promise<FaultProxy[]> {
    const proxies = await Promise.all(this.ports.map((port) => FaultProxy.start(port)));
    this.#proxies.push(...proxies);
    return proxies;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client.disconnect();
    for (const proxy of this.#proxies) await proxy[Symbol.asyncDispose]();
    await this.#group.stop();
    for (const { clock } of this.nodes) clock?.[Symbol.dispose]();
  }
}

function nodeOf(server: Server, clock: ClockShim | undefined): RedlockNode {
  const down = async (): Promise<void> => {
    if (server.running) await server.kill();
  };
  const forget = async (): Promise<void> => {
    const data = join(server.folder, 'data');
    for (const file of await readdir(data)) await rm(join(data, file), { recursive: true });
  };
  return {
    server,
    clock,
    forget,
    async restart() {
      await down();
      await server.restart();
    },
    async restartEmpty() {
      await down();
      await forget();
      await server.restart();
    },
  };
}
