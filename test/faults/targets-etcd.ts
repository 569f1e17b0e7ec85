/** etcd under faults: one member, and a cluster of three. */
import { etcdctl, provideEtcdctl, startEtcd, startEtcdCluster } from '../servers/etcd.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import type { Network } from '../servers/network.js';
import type { Server } from '../servers/server.js';
import type { Target } from './targets.js';

type Apart = NonNullable<Target['apart']>;
export type ApartOn = (network: Network, servers: readonly Server[], settled: () => Promise<void>) => Apart;

/** Proxies for each worker, one before each member. */
class WorkerProxies implements AsyncDisposable {
  readonly all = new Map<string, readonly FaultProxy[]>();
  readonly #members: readonly Server[];

  constructor(members: readonly Server[]) {
    this.#members = members;
  }

  async urlFor(worker: string): Promise<string> {
    const known = this.all.get(worker);
    const proxies = known ?? (await Promise.all(this.#members.map(({ port }) => FaultProxy.start(port))));
    this.all.set(worker, proxies);
    return urlOf(proxies.map(({ port }) => ({ host: '127.0.0.1', port })));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const proxy of [...this.all.values()].flat()) await proxy[Symbol.asyncDispose]();
  }
}

export async function startEtcdSingle(): Promise<Target> {
  const server = await startEtcd();
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

/** @param apart where every member has a host of its own. */
export async function startEtcdThree(apart?: { network: Network; apartOn: ApartOn }): Promise<Target> {
  const cluster = await startEtcdCluster(apart && { hosts: () => apart.network.host() });
  const { members } = cluster;
  const proxies = new WorkerProxies(members);
  const url = urlOf(members);
  return {
    ...(await common(members)),
    urlFor: async (worker) => (apart ? url : proxies.urlFor(worker)),
    leader: () => cluster.leader(),
    failover: async () => {
      const old = await cluster.leader();
      await old.kill();
      await cluster.leader();
      await old.restart();
      await cluster.settled();
    },
    ...(apart ? { apart: apart.apartOn(apart.network, members, () => cluster.settled()) } : { proxies: proxies.all }),
    [Symbol.asyncDispose]: async () => {
      await proxies[Symbol.asyncDispose]();
      await cluster[Symbol.asyncDispose]();
    },
  };
}

async function common(
  members: readonly Server[],
): Promise<Pick<Target, 'observerUrl' | 'deleteSome' | 'leftovers' | 'versions'>> {
  const program = await provideEtcdctl();
  const anyMember = (): Server => members.find(({ running }) => running) ?? members[0]!;
  const ctl = (...words: string[]): Promise<string> => etcdctl(program, anyMember(), ...words);
  const keys = async (namespace: string): Promise<string[]> =>
    (await ctl('get', `${namespace}/`, '--prefix', '--keys-only')).split('\n').filter(Boolean);
  const [, version = 'unknown'] = /version: (\S+)/.exec(await ctl('version')) ?? [];
  return {
    observerUrl: urlOf(members),
    deleteSome: async (namespace) => {
      const claims = (await keys(namespace)).filter((key) => !key.includes('/register/'));
      const key = claims[Math.floor(Math.random() * claims.length)];
      if (key !== undefined) await ctl('del', key);
    },
    // Registers stay on purpose.
    leftovers: async (namespace) => (await keys(namespace)).filter((key) => !key.includes('/register/')),
    versions: { etcd: version },
  };
}

function urlOf(members: readonly Pick<Server, 'host' | 'port'>[]): string {
  return `etcd://${members.map(({ host, port }) => `${host}:${port}`).join(',')}`;
}
