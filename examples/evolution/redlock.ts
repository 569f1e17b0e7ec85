import type { Redis } from 'ioredis';
import { Holdfast } from '../../src/index.js';
import { FaultProxy } from '../../test/servers/fault-proxy.js';
import { renewed } from '../../test/servers/lines.js';
import { LOOPBACK } from '../../test/servers/ports.js';
import { startRedis } from '../../test/servers/redis.js';
import type { Server } from '../../test/servers/server.js';
import { startGroup } from '../../test/servers/server-group.js';
import { type Chapter, naiveCode } from './chapter.js';
import { aged, clientOf } from './redis.js';

// #region naive
async function lock(nodes: readonly Redis[], key: string, id: string, ttlMs: number): Promise<boolean> {
  const startedAt = Date.now();
  const answers = await Promise.allSettled(nodes.map((node) => node.set(key, id, 'PX', ttlMs, 'NX')));
  const votes = answers.filter((answer) => answer.status === 'fulfilled' && answer.value === 'OK').length;
  const leftMs = ttlMs - (Date.now() - startedAt);
  return votes > nodes.length / 2 && leftMs > 0;
}
// #endregion

/** Long enough for a node to come back. */
const TTL_MS = 2_000;

export const redlock: Chapter = {
  word: 'redlock',
  title: 'Redlock: a majority of independent servers',
  tries: 'Three servers that know nothing of each other. Whoever has the key on two of them has the lock.',
  code: naiveCode(import.meta.url),

  async naive(scene) {
    await using nodes = await Nodes.start();
    const [ada, ben, server] = scene.actors('Ada', 'Ben', 'Node 2');
    using adas = nodes.clients(nodes.asAdaReachesThem);
    const hers = await lock(adas.nodes, 'order:42', 'ada', 30_000);
    ada!.enters('nodes 1 and 2 → OK, 3 is cut off');
    await nodes.restartSecond();
    server!.does('restarts, without the key');
    using bens = nodes.clients(nodes.all);
    const his = await lock(bens.nodes, 'order:42', 'ben', 30_000);
    ben!.enters('nodes 2 and 3 → OK');
    scene.broken(
      'Node 2 voted for Ada, forgot it, and voted for Ben. Both have a majority.',
      [hers, his, scene.mostInside],
      [true, true, 2],
    );
  },

  async holdfast(scene) {
    await using nodes = await Nodes.start();
    // So that none of them is new any more when Ada comes.
    await Promise.all(nodes.all.map((node) => aged(node, TTL_MS / 1_000 + 3)));
    await using adas = holdfastOf(nodes.asAdaReachesThem, 'ada');
    await using bens = holdfastOf(nodes.all, 'ben');
    const [ada, ben, server] = scene.actors('Ada', 'Ben', 'Node 2');
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('nodes 1 and 2 accept her token');
    await nodes.restartSecond();
    server!.does('restarts, without the key');
    const waits = bens.mutex('order:42').run(({ token }) => {
      ben!.enters('is granted the lock');
      return token;
    });
    ben!.waits('acquire → node 2 does not vote yet');
    await renewed(lease);
    ada!.does('a beat: node 2 has her key again');
    ada!.leaves('release');
    const kept = await lease.release();
    const token = await waits;
    scene.holds(
      'A node that was restarted takes part in no new lock for one ttl, so Ben had to wait.',
      scene.mostInside,
      1,
    );
    scene.holds('Ada’s beat put her key back on node 2. She kept the lock until she released it.', kept);
    scene.holds(
      'Ben’s token is larger than Ada’s: any two majorities share a node, and it accepts no smaller one.',
      token > lease.token,
    );
  },
};

interface At {
  readonly port: number;
}

function holdfastOf(nodes: readonly At[], label: string): Holdfast {
  return new Holdfast(`redlock://${nodes.map(({ port }) => `${LOOPBACK}:${port}`).join(',')}`, { ttl: TTL_MS, label });
}

/** Three servers without persistence; Ada does not reach the third. */
class Nodes implements AsyncDisposable {
  readonly all: readonly Server[];
  readonly #cut: FaultProxy;
  readonly #stop: () => Promise<void>;

  static start(): Promise<Nodes> {
    return startGroup(async (group) => {
      const servers = await group.add([startRedis(), startRedis(), startRedis()]);
      const cut = await FaultProxy.start(servers[2]!.port);
      cut.set({ mode: 'reset' });
      return new Nodes(servers, cut, () => group.stop());
    });
  }

  private constructor(servers: readonly Server[], cut: FaultProxy, stop: () => Promise<void>) {
    this.all = servers;
    this.#cut = cut;
    this.#stop = stop;
  }

  get asAdaReachesThem(): readonly At[] {
    return [this.all[0]!, this.all[1]!, this.#cut];
  }

  clients(nodes: readonly At[]): { readonly nodes: readonly Redis[] } & Disposable {
    const clients = nodes.map((node) => clientOf(node));
    return { nodes: clients, [Symbol.dispose]: () => clients.forEach((client) => client.disconnect()) };
  }

  async restartSecond(): Promise<void> {
    await this.all[1]!.kill();
    await this.all[1]!.restart();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cut[Symbol.asyncDispose]();
    await this.#stop();
  }
}
