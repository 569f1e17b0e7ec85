/** etcd under faults: one member, and a cluster of three. */
import { etcdctl, provideEtcdctl, startEtcd, startEtcdCluster } from '../servers/etcd.js';
import type { Server } from '../servers/server.js';
import { type OnHosts, single, type System, three } from './targets-members.js';
import type { Target } from './targets.js';
import { GARBAGE, STRANGER } from './tenant.js';

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
    tenant: async ({ namespace, names, random }) => {
      const inboxes = (await keys(namespace)).filter((key) => key.includes('/inbox/') && key.endsWith('/'));
      const value = random.pick(GARBAGE.filter((text) => text.trim() !== '' && !text.startsWith('-')));
      const odd = [
        `${namespace}/lock/%zz/${STRANGER}`,
        `${namespace}/lock/${STRANGER}/%zz`,
        `${namespace}/${STRANGER}/${random.int(50)}`,
        `${namespace}/semaphore/${random.pick(names)}/${STRANGER}`,
        `${namespace}/register/%zz${STRANGER}`,
        ...inboxes.flatMap((inbox) => [`${inbox}%zz${STRANGER}`, `${inbox}${STRANGER}`]),
      ];
      for (const key of odd) await ctl('put', key, value);
    },
    // Registers stay on purpose.
    leftovers: async (namespace) => (await keys(namespace)).filter((key) => !key.includes('/register/')),
    versions: { etcd: version },
  };
}

function urlOf(members: readonly Pick<Server, 'host' | 'port'>[]): string {
  return `etcd://${members.map(({ host, port }) => `${host}:${port}`).join(',')}`;
}
