/** Every client library that the Redis engine takes, connected to a server, to Sentinels and to a cluster. */
import * as nodeRedis6 from '@redis/client';
import * as ioredis6 from 'ioredis';
import * as ioredis5 from 'ioredis-5';
import * as iovalkey from 'iovalkey';
import * as nodeRedis5 from 'redis-client-5';
import { clientFromUrl } from '../../src/engines/redis/from-url.js';
import { redisUrl } from '../../src/engines/redis/url.js';
import { parseEngineUrl } from '../../src/kit/url.js';
import { LOOPBACK } from '../servers/ports.js';

type Hosts = readonly { readonly host: string; readonly port: number }[];

export interface Connected {
  readonly client: object;
  close(): void;
}

export interface RedisClients {
  readonly name: string;
  /** Its cluster client for ever waits for a node that has crashed, whatever became of the node's slots. */
  readonly waitsForTheDead?: boolean;
  single(port: number): Promise<Connected>;
  sentinel(hosts: Hosts, name: string): Promise<Connected>;
  cluster(hosts: Hosts): Promise<Connected>;
}

/** The three have the same shape. */
interface Ioredis {
  Redis: new (options: object) => Disconnectable;
  Cluster: new (hosts: { host: string; port: number }[]) => Disconnectable;
}

interface Disconnectable {
  disconnect(): void;
}

function ofIoredis(name: string, { Redis, Cluster }: Ioredis): RedisClients {
  return {
    name,
    single: async (port) => disconnectable(new Redis({ port })),
    sentinel: async (hosts, master) => disconnectable(new Redis({ sentinels: [...hosts], name: master })),
    cluster: async (hosts) => disconnectable(new Cluster([...hosts])),
  };
}

function disconnectable(client: Disconnectable): Connected {
  return { client, close: () => client.disconnect() };
}

/** The two have the same shape. */
interface NodeRedis {
  createClient(options: { url: string }): Destroyable;
  createSentinel(options: { name: string; sentinelRootNodes: { host: string; port: number }[] }): Destroyable;
  createCluster(options: { rootNodes: { url: string }[] }): Destroyable;
}

interface Destroyable {
  connect(): Promise<unknown>;
  destroy(): unknown;
  on(event: 'error', listener: () => void): unknown;
}

function ofNodeRedis(name: string, library: NodeRedis): RedisClients {
  return {
    name,
    single: (port) => connected(library.createClient({ url: `redis://${LOOPBACK}:${port}` })),
    sentinel: (hosts, master) => connected(library.createSentinel({ name: master, sentinelRootNodes: [...hosts] })),
    cluster: (hosts) =>
      connected(
        library.createCluster({ rootNodes: hosts.map(({ host, port }) => ({ url: `redis://${host}:${port}` })) }),
      ),
  };
}

async function connected(client: Destroyable): Promise<Connected> {
  // An error without a listener ends the process.
  client.on('error', () => {});
  await client.connect();
  return { client, close: () => void client.destroy() };
}

/** Ours, as a URL makes it. A URL itself would hide the raw engine from the suite. */
const byUrl: RedisClients = {
  name: 'a URL',
  single: (port) => fromUrl(`redis://${LOOPBACK}:${port}`),
  sentinel: (hosts, name) => fromUrl(`redis+sentinel://${listed(hosts)}/${name}`),
  cluster: (hosts) => fromUrl(`redis+cluster://${listed(hosts)}`),
};

async function fromUrl(url: string): Promise<Connected> {
  return disconnectable(await clientFromUrl(redisUrl(parseEngineUrl(url))));
}

function listed(hosts: Hosts): string {
  return hosts.map(({ host, port }) => `${host}:${port}`).join();
}

export const REDIS_CLIENTS: readonly RedisClients[] = [
  byUrl,
  ofIoredis('ioredis 6', ioredis6),
  ofIoredis('ioredis 5', ioredis5),
  ofIoredis('iovalkey', iovalkey),
  ofNodeRedis('node-redis 6', nodeRedis6),
  { ...ofNodeRedis('node-redis 5', nodeRedis5), waitsForTheDead: true },
];
