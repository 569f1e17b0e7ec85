/** Systems whose clients are told of all members, under faults: one server, or three that agree by majority. */
import { FaultProxy } from '../servers/fault-proxy.js';
import type { Network } from '../servers/network.js';
import type { Server } from '../servers/server.js';
import type { Target } from './targets.js';

type At = Pick<Server, 'host' | 'port'>;
type Apart = NonNullable<Target['apart']>;

/** Where every member has a host of its own. */
export interface OnHosts {
  readonly network: Network;
  readonly apartOn: (network: Network, servers: readonly Server[], settled: () => Promise<void>) => Apart;
}

interface Cluster extends AsyncDisposable {
  readonly members: readonly Server[];
  leader(): Promise<Server>;
  settled(): Promise<void>;
}

/** What the system itself has to say. */
export interface System {
  readonly urlOf: (members: readonly At[]) => string;
  readonly described: (
    members: readonly Server[],
  ) => Promise<Pick<Target, 'observerUrl' | 'secrets' | 'deleteSome' | 'tenant' | 'leftovers' | 'versions'>>;
}

/** Proxies for each worker, one before each member. */
class WorkerProxies implements AsyncDisposable {
  readonly all = new Map<string, readonly FaultProxy[]>();
  readonly #members: readonly Server[];
  readonly #urlOf: System['urlOf'];

  constructor(members: readonly Server[], urlOf: System['urlOf']) {
    this.#members = members;
    this.#urlOf = urlOf;
  }

  async urlFor(worker: string): Promise<string> {
    const known = this.all.get(worker);
    const proxies = known ?? (await Promise.all(this.#members.map(({ port }) => FaultProxy.start(port))));
    this.all.set(worker, proxies);
    return this.#urlOf(proxies.map(({ port }) => ({ host: '127.0.0.1', port })));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const proxy of [...this.all.values()].flat()) await proxy[Symbol.asyncDispose]();
  }
}

export async function single(server: Server, { urlOf, described }: System): Promise<Target> {
  const proxies = new WorkerProxies([server], urlOf);
  return {
    ...(await described([server])),
    urlFor: (worker) => proxies.urlFor(worker),
    server,
    proxies: proxies.all,
    [Symbol.asyncDispose]: async () => {
      await proxies[Symbol.asyncDispose]();
      await server.stop();
    },
  };
}

export async function three(cluster: Cluster, { urlOf, described }: System, onHosts?: OnHosts): Promise<Target> {
  const { members } = cluster;
  const proxies = new WorkerProxies(members, urlOf);
  const settled = (): Promise<void> => cluster.settled();
  return {
    ...(await described(members)),
    urlFor: async (worker) => (onHosts ? urlOf(members) : proxies.urlFor(worker)),
    leader: () => cluster.leader(),
    failover: async () => {
      const old = await cluster.leader();
      await old.kill();
      await cluster.leader();
      await old.restart();
      await cluster.settled();
    },
    ...(onHosts ? { apart: onHosts.apartOn(onHosts.network, members, settled) } : { proxies: proxies.all }),
    [Symbol.asyncDispose]: async () => {
      await proxies[Symbol.asyncDispose]();
      await cluster[Symbol.asyncDispose]();
    },
  };
}
