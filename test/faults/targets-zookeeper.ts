/** ZooKeeper under faults: one server, and an ensemble of three. */
import { ZooKeeperClient } from '../../src/engines/zookeeper/client/client.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import type { Network } from '../servers/network.js';
import type { Server } from '../servers/server.js';
import { startZooKeeper, startZooKeeperEnsemble, versionOf } from '../servers/zookeeper.js';
import type { Target } from './targets.js';

type Apart = NonNullable<Target['apart']>;
type ApartOn = (network: Network, servers: readonly Server[], settled: () => Promise<void>) => Apart;

/** Workers say who they are, so that it can be seen whether the password gets anywhere. */
const PASSWORD = 'correct-horse-battery-staple';
const DIGEST = `worker:${PASSWORD}`;

/** Proxies for each worker, one before each server. */
class WorkerProxies implements AsyncDisposable {
  readonly all = new Map<string, readonly FaultProxy[]>();
  readonly #servers: readonly Server[];

  constructor(servers: readonly Server[]) {
    this.#servers = servers;
  }

  async urlFor(worker: string): Promise<string> {
    const known = this.all.get(worker);
    const proxies = known ?? (await Promise.all(this.#servers.map(({ port }) => FaultProxy.start(port))));
    this.all.set(worker, proxies);
    return urlOf(proxies.map(({ port }) => ({ host: '127.0.0.1', port })));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const proxy of [...this.all.values()].flat()) await proxy[Symbol.asyncDispose]();
  }
}

export async function startZooKeeperSingle(): Promise<Target> {
  const server = await startZooKeeper();
  const proxies = new WorkerProxies([server]);
  return {
    ...(await common([server])),
    urlFor: (worker) => proxies.urlFor(worker),
    server,
    proxies: proxies.all,
    [Symbol.asyncDispose]: async () => {
      await proxies[Symbol.asyncDispose]();
      await server.stop();
    },
  };
}

/** @param apart where every server has a host of its own. */
export async function startZooKeeperThree(apart?: { network: Network; apartOn: ApartOn }): Promise<Target> {
  const ensemble = await startZooKeeperEnsemble(apart && { hosts: () => apart.network.host() });
  const { members } = ensemble;
  const proxies = new WorkerProxies(members);
  const url = urlOf(members);
  return {
    ...(await common(members)),
    urlFor: async (worker) => (apart ? url : proxies.urlFor(worker)),
    leader: () => ensemble.leader(),
    failover: async () => {
      const old = await ensemble.leader();
      await old.kill();
      await ensemble.leader();
      await old.restart();
      await ensemble.settled();
    },
    ...(apart ? { apart: apart.apartOn(apart.network, members, () => ensemble.settled()) } : { proxies: proxies.all }),
    [Symbol.asyncDispose]: async () => {
      await proxies[Symbol.asyncDispose]();
      await ensemble[Symbol.asyncDispose]();
    },
  };
}

async function common(
  servers: readonly Server[],
): Promise<Pick<Target, 'observerUrl' | 'secrets' | 'deleteSome' | 'leftovers' | 'versions'>> {
  return {
    observerUrl: urlOf(servers),
    secrets: [PASSWORD],
    deleteSome: (namespace) =>
      visiting(servers, async (client) => {
        const nodes = await claims(client, namespace);
        const node = nodes[Math.floor(Math.random() * nodes.length)];
        if (node !== undefined) await client.delete(node).catch(() => {});
      }),
    // Registers stay on purpose, and the servers remove the nodes of empty lines when they find them. The observer is there.
    leftovers: (namespace) =>
      visiting(servers, async (client) =>
        (await claims(client, namespace)).filter((path) => !path.includes('/session/')),
      ),
    versions: { zookeeper: await versionOf(servers[0]!) },
  };
}

/** Paths of everything that goes with a session: claims, and the sessions' own nodes. */
async function claims(client: ZooKeeperClient, namespace: string): Promise<string[]> {
  const found: string[] = [];
  await client.sync();
  for (const kind of ['lock', 'semaphore', 'session']) {
    for (const name of await children(client, `/${namespace}/${kind}`)) {
      const path = `/${namespace}/${kind}/${name}`;
      if (kind === 'session') found.push(path);
      else found.push(...(await children(client, path)).map((node) => `${path}/${node}`));
    }
  }
  return found;
}

async function visiting<T>(servers: readonly Server[], work: (client: ZooKeeperClient) => Promise<T>): Promise<T> {
  const awake = servers.filter(({ running }) => running).map(({ host, port }) => ({ host, port }));
  const client = new ZooKeeperClient({ servers: awake, timeoutMs: 10_000, digest: DIGEST, random: Math.random });
  try {
    await client.open(10_000);
    return await work(client);
  } finally {
    await client.close();
  }
}

async function children(client: ZooKeeperClient, path: string): Promise<readonly string[]> {
  const found = await client.getChildren(path).catch(() => undefined);
  return found?.names ?? [];
}

function urlOf(servers: readonly Pick<Server, 'host' | 'port'>[]): string {
  return `zookeeper://${DIGEST}@${servers.map(({ host, port }) => `${host}:${port}`).join(',')}`;
}
