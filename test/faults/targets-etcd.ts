/** etcd under faults: one member, and a cluster of three. */
import { etcdctl, provideEtcdctl, startEtcd, startEtcdCluster } from '../servers/etcd.js';
import type { Server } from '../servers/server.js';
import { type OnHosts, single, type System, three } from './targets-members.js';
import type { Target } from './targets.js';

const ETCD: System = { urlOf, described };

export async function startEtcdSingle(): Promise<Target> {
  return single(await startEtcd(), ETCD);
}

export async function startEtcdThree(onHosts?: OnHosts): Promise<Target> {
  return three(await startEtcdCluster(onHosts && { hosts: () => onHosts.network.host() }), ETCD, onHosts);
}

async function described(members: readonly Server[]): ReturnType<System['described']> {
  const program = provideEtcdctl();
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
