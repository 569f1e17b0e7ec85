/** ZooKeeper under faults: one server, and an ensemble of three. */
import { ZooKeeperClient } from '../../src/engines/zookeeper/client/client.js';
import type { Server } from '../servers/server.js';
import { startZooKeeper, startZooKeeperEnsemble, versionOf } from '../servers/zookeeper.js';
import { type OnHosts, single, type System, three } from './targets-members.js';
import type { Target } from './targets.js';
import { GARBAGE, STRANGER } from './tenant.js';

/** Workers say who they are, so that it can be seen whether the password gets anywhere. */
const PASSWORD = 'correct-horse-battery-staple';
const DIGEST = `worker:${PASSWORD}`;

const ZOOKEEPER: System = { urlOf, described };

export async function startZooKeeperSingle(): Promise<Target> {
  return single(await startZooKeeper(), ZOOKEEPER);
}

export async function startZooKeeperThree(onHosts?: OnHosts): Promise<Target> {
  const ensemble = await startZooKeeperEnsemble(onHosts && { hosts: () => onHosts.network.host() });
  return three(ensemble, ZOOKEEPER, onHosts);
}

async function described(servers: readonly Server[]): ReturnType<System['described']> {
  return {
    observerUrl: urlOf(servers),
    secrets: [PASSWORD],
    deleteSome: (namespace) =>
      visiting(servers, async (client) => {
        const nodes = await claims(client, namespace);
        const node = nodes[Math.floor(Math.random() * nodes.length)];
        if (node !== undefined) await client.delete(node).catch(() => {});
      }),
    tenant: ({ namespace, names, random }) =>
      visiting(servers, async (client) => {
        const data = Buffer.from(random.pick(GARBAGE));
        const add = (path: string): Promise<unknown> =>
          client.create(path, { data, mode: 'persistent' }).catch(() => {});
        for (const kind of ['lock', 'semaphore', 'session', 'register']) {
          for (const name of [STRANGER, `%zz${STRANGER}`]) {
            await add(`/${namespace}/${kind}/${name}`);
            await add(`/${namespace}/${kind}/${name}/_c_${STRANGER}-lock-NaN`);
          }
        }
        // Below a line of ours, where no name is that of a claim.
        await add(`/${namespace}/lock/${random.pick(names)}/${STRANGER}-${random.int(9)}`);
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
