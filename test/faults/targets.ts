/** The engines that can be put under faults: how to start what they need, and how a worker reaches it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { Redis } from 'ioredis';
import { type ClockShim, clockShim } from '../servers/clock-shim.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import type { Host, Network } from '../servers/network.js';
import { addressOf, type Where } from '../servers/ports.js';
import { type RedlockNode, RedlockNodes } from '../engines/redis/redlock-nodes.js';
import { type RedisCluster, startCluster } from '../servers/redis-cluster.js';
import { type RedisSentinel, startSentinel } from '../servers/redis-sentinel.js';
import { startRedis } from '../servers/redis.js';
import { command, info } from '../servers/resp.js';
import type { Server } from '../servers/server.js';
import type { Property } from './history.js';
import type { Routes } from '../servers/routes.js';
import { type OddSetting, oddSettings } from './odd-settings.js';
import { GARBAGE, messages, replays, strangeName, STRANGER, type Visit } from './tenant.js';
import { fenceTargets } from './targets-fence.js';
import { POSTGRES_TARGETS } from './targets-postgres.js';
import { MYSQL_TARGETS } from './targets-mysql.js';
import { MEMCACHED } from './targets-memcached.js';
import { startEtcdSingle, startEtcdThree } from './targets-etcd.js';
import { startZooKeeperSingle, startZooKeeperThree } from './targets-zookeeper.js';

/** A started engine. What it does not have is a reason not to run a nemesis. */
export interface Target extends AsyncDisposable {
  /** A new address for each worker where a proxy stands before the server. */
  urlFor(worker: string): Promise<string>;
  /** What the locks protect, if it is not kept by the coordinator: guards.ts. */
  readonly guardedUrl?: string;
  /** To look at lines from outside; absent where only the process itself can, and where they can't be listed. */
  readonly observerUrl?: string;
  readonly server?: Server;
  /** The one of several servers that grants, now. */
  readonly leader?: () => Promise<Server>;
  /** Takes a part of what is stored away, as a careless operator does. */
  readonly deleteSome?: (namespace: string) => Promise<void>;
  /** A stranger's visit: it adds and publishes, and takes nothing away. */
  readonly tenant?: (visit: Visit) => Promise<void>;
  /** What an operator may set to something else. */
  readonly oddSettings?: readonly OddSetting[];
  /** Words that must not appear in anything that is written. */
  readonly secrets?: readonly string[];
  /** Of each worker, before the server or before each of them. */
  readonly proxies?: ReadonlyMap<string, FaultProxy | readonly FaultProxy[]>;
  /** Where clients find the servers by themselves: how a worker gets to each of them through its own proxies. */
  readonly routesFor?: (worker: string) => Promise<Routes>;
  readonly clock?: ClockShim;
  /** Makes another server the primary, by killing the one there is; what was killed comes back as a replica. */
  readonly failover?: () => Promise<void>;
  /** Every command that Redis knows, to whichever node holds the locks. */
  readonly redis?: (...words: string[]) => Promise<unknown>;
  /** Ends connections of clients, some of them or all, as an operator does. Absent: as Redis does it, if it is one. */
  readonly endConnections?: () => Promise<void>;
  /** Forgets everything, as a server without persistence does that lost its machine. The server does not run. */
  readonly forget?: () => Promise<void>;
  /** What is still there though everybody has left. */
  leftovers(namespace: string): Promise<string[]>;
  readonly versions: Readonly<Record<string, string>>;
  /** Where every server and every worker is on a host of its own. */
  readonly apart?: Apart;
}

interface Apart {
  readonly network: Network;
  /** All of them, also those that only elect. */
  readonly servers: readonly Server[];
  readonly workers: ReadonlyMap<string, Host>;
  hostFor(worker: string): Promise<Host>;
  /** After the network is whole again: one leads, and all others know it. */
  readonly settled: () => Promise<void>;
}

export interface TargetKind {
  /** False: all of the workload is one process. */
  readonly processes: boolean;
  start(): Promise<Target>;
  /** The same on hosts of their own, for faults of the network. */
  readonly startApart?: (network: Network) => Promise<Target>;
  /** What every change has to pass (`--short`), all of it in one run. Absent: nothing. */
  readonly short?: { readonly seconds: number; readonly nemeses: readonly string[] };
  /** What the engine's page does not promise: counted, not judged. What follows from its traits is not listed. */
  readonly spares?: readonly Property[];
  /** The same for single nemeses, beside what these spare everywhere. */
  readonly sparesUnder?: Readonly<Record<string, readonly Property[]>>;
}

/** It still serves its clients while another was promoted: two holders, whom only the fence keeps apart. */
const ISOLATED_PRIMARY: TargetKind['sparesUnder'] = { partition: ['belief', 'fifo'], 'one-way': ['belief', 'fifo'] };

/** Without a guard, what a server forgets is free at once. */
const ONE_KEY: TargetKind['sparesUnder'] = { 'restart-empty': ['belief'], delete: ['belief'] };

/** Which names are run, and which promises judged, follows from the engine's traits. */
export const TARGETS: Readonly<Record<string, TargetKind>> = {
  memory: { processes: false, start: startMemory, short: { seconds: 3, nemeses: ['stall', 'crowd'] } },
  sqlite: {
    processes: true,
    start: startSqlite,
    short: { seconds: 5, nemeses: ['stall', 'pause', 'kill', 'evict', 'hostile-tenant'] },
  },
  redis: {
    processes: true,
    start: () => startRedisSingle(),
    startApart: startRedisSingleApart,
    short: {
      seconds: 6,
      nemeses: ['stall', 'pause', 'kill', 'hang', 'cut', 'lost-replies', 'client-kill', 'restart'],
    },
  },
  'redis-sentinel': {
    processes: true,
    start: startRedisSentinel,
    startApart: startRedisSentinel,
    sparesUnder: ISOLATED_PRIMARY,
    short: { seconds: 6, nemeses: ['stall', 'failover'] },
  },
  'redis-cluster': {
    processes: true,
    start: startRedisCluster,
    startApart: startRedisCluster,
    sparesUnder: ISOLATED_PRIMARY,
  },
  'redis:plain': {
    processes: true,
    start: () => startRedisSingle('?strategy=plain'),
    sparesUnder: ONE_KEY,
  },
  'redis:hash': {
    processes: true,
    start: () => startRedisSingle('?strategy=hash'),
    sparesUnder: ONE_KEY,
  },
  redlock: {
    processes: true,
    start: startRedlock,
    short: { seconds: 5, nemeses: ['stall', 'kill', 'hang', 'cut', 'restart-empty'] },
  },
  ...POSTGRES_TARGETS,
  ...MYSQL_TARGETS,
  memcached: MEMCACHED,
  etcd: {
    processes: true,
    start: startEtcdSingle,
    short: { seconds: 4, nemeses: ['stall', 'kill', 'cut', 'lost-replies', 'restart', 'hostile-tenant'] },
  },
  'etcd-cluster': {
    processes: true,
    start: () => startEtcdThree(),
    startApart: (network) => startEtcdThree({ network, apartOn }),
  },
  zookeeper: {
    processes: true,
    start: startZooKeeperSingle,
    short: { seconds: 4, nemeses: ['stall', 'kill', 'cut', 'lost-replies', 'restart', 'hostile-tenant'] },
  },
  'zookeeper-cluster': {
    processes: true,
    start: () => startZooKeeperThree(),
    startApart: (network) => startZooKeeperThree({ network, apartOn }),
  },
  ...fenceTargets({
    postgres: () => POSTGRES_TARGETS['postgres']!.start(),
    mysql: () => MYSQL_TARGETS['mysql']!.start(),
    sqlite: startSqlite,
    redis: () => startRedisSingle(),
  }),
};

async function startMemory(): Promise<Target> {
  return {
    urlFor: async () => 'memory:',
    leftovers: async () => [],
    versions: {},
    [Symbol.asyncDispose]: async () => {},
  };
}

async function startSqlite(): Promise<Target> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-faults-'));
  const file = join(folder, 'locks.db');
  const url = `sqlite:${file}`;
  return {
    urlFor: async () => url,
    observerUrl: url,
    deleteSome: async () => {
      using database = new Rows(file);
      database.deleteAll();
    },
    tenant: async (visit) => {
      using database = new Rows(file);
      database.addOdd(visit);
    },
    leftovers: async () => [],
    versions: {},
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** @param query of its URLs: which strategy. */
async function startRedisSingle(query = ''): Promise<Target> {
  const clock = await clockShim();
  const server = await startRedis({
    ...(clock && { env: clock.env }),
    args: [
      ...['--appendonly', 'yes', '--appendfsync', 'always'],
      // Workers have a password, so that it can be seen whether it gets anywhere.
      ...['--user', 'worker', 'on', `>${PASSWORD}`, '~*', '&*', '+@all'],
    ],
  });
  const proxies = new Map<string, FaultProxy>();
  return {
    urlFor: async (worker) => {
      const proxy = proxies.get(worker) ?? (await FaultProxy.start(server.port));
      proxies.set(worker, proxy);
      return `redis://worker:${PASSWORD}@127.0.0.1:${proxy.port}${query}`;
    },
    observerUrl: `redis://127.0.0.1:${server.port}${query}`,
    secrets: [PASSWORD],
    deleteSome: (namespace) => deleteOneKey(server.port, namespace),
    server,
    proxies,
    ...(clock && { clock }),
    redis: (...words) => command(server.port, ...words),
    tenant: (visit) => tenantOfRedis([server], visit),
    oddSettings: settingsOfRedis(server),
    forget: async () => {
      const data = join(server.folder, 'data');
      for (const file of await readdir(data)) await rm(join(data, file), { recursive: true });
    },
    leftovers: (namespace) => keysLeft([server.port], namespace),
    versions: { redis: await redisVersion(server.port) },
    [Symbol.asyncDispose]: async () => {
      for (const proxy of proxies.values()) await proxy[Symbol.asyncDispose]();
      await server.stop();
      clock?.[Symbol.dispose]();
    },
  };
}

/** Nothing but the network is lost here, so it needs neither persistence nor clocks, and no proxy. */
async function startRedisSingleApart(network: Network): Promise<Target> {
  const server = await startRedis({ host: await network.host() });
  const url = `redis://${server.host}:${server.port}`;
  return {
    urlFor: async () => url,
    observerUrl: url,
    server,
    redis: (...words) => command(server, ...words),
    leftovers: (namespace) => keysLeft([server], namespace),
    versions: { redis: await redisVersion(server) },
    apart: apartOn(network, [server], async () => {}),
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

function apartOn(network: Network, servers: readonly Server[], settled: () => Promise<void>): Apart {
  const workers = new Map<string, Host>();
  return {
    network,
    servers,
    workers,
    settled,
    hostFor: async (worker) => {
      const host = workers.get(worker) ?? (await network.host());
      workers.set(worker, host);
      return host;
    },
  };
}

/** A proxy for each worker and server. Neither is there before a worker needs it. */
class LinkProxies implements AsyncDisposable {
  readonly proxies = new Map<string, readonly FaultProxy[]>();
  readonly #servers: readonly Server[];

  constructor(servers: readonly Server[]) {
    this.#servers = servers;
  }

  readonly routesFor = async (worker: string): Promise<Routes> => {
    const proxies =
      this.proxies.get(worker) ?? (await Promise.all(this.#servers.map(({ port }) => FaultProxy.start(port))));
    this.proxies.set(worker, proxies);
    return Object.fromEntries(this.#servers.map(({ port }, at) => [port, proxies[at]!.port]));
  };

  async [Symbol.asyncDispose](): Promise<void> {
    for (const proxy of [...this.proxies.values()].flat()) await proxy[Symbol.asyncDispose]();
  }
}

async function startRedisSentinel(network?: Network): Promise<Target> {
  const sentinel: RedisSentinel = await startSentinel(network && { host: () => network.host() });
  const hosts = sentinel.hosts.map(({ host, port }) => `${host}:${port}`).join(',');
  const url = `redis+sentinel://${hosts}/${sentinel.name}`;
  const primary = (): Promise<Server> => sentinel.currentPrimary();
  const servers = [...sentinel.servers, ...sentinel.sentinels];
  const links = new LinkProxies(servers);
  return {
    urlFor: async () => url,
    observerUrl: url,
    leader: primary,
    deleteSome: async (namespace) => deleteOneKey(await primary(), namespace),
    failover: async () => {
      const old = await primary();
      await old.kill();
      await sentinel.settled();
      await old.restart();
      await sentinel.settled();
    },
    redis: async (...words) => command(await primary(), ...words),
    tenant: async (visit) => tenantOfRedis([await primary()], visit),
    leftovers: async (namespace) => keysLeft([await primary()], namespace),
    versions: { redis: await redisVersion(sentinel.primary) },
    ...(network
      ? { apart: apartOn(network, servers, () => sentinel.settled()) }
      : { proxies: links.proxies, routesFor: links.routesFor }),
    [Symbol.asyncDispose]: async () => {
      await links[Symbol.asyncDispose]();
      await sentinel[Symbol.asyncDispose]();
    },
  };
}

async function startRedisCluster(network?: Network): Promise<Target> {
  const cluster: RedisCluster = await startCluster(network && { host: () => network.host() });
  const links = new LinkProxies(cluster.nodes);
  const url = `redis+cluster://${cluster.hosts.map(({ host, port }) => `${host}:${port}`).join(',')}`;
  return {
    urlFor: async () => url,
    observerUrl: url,
    leader: () => cluster.primaryOf(Math.floor(Math.random() * 16_384)),
    deleteSome: async (namespace) => deleteOneKey(await cluster.primaryOf(0), namespace),
    failover: async () => {
      const slot = Math.floor(Math.random() * 16_384);
      const old = await cluster.primaryOf(slot);
      await cluster.failover(slot, 'kill');
      await old.restart();
      await cluster.settled();
    },
    redis: async (...words) => {
      for (const slot of [0, 6_000, 12_000]) await command(await cluster.primaryOf(slot), ...words);
    },
    leftovers: async (namespace) => {
      const primaries = await Promise.all([0, 6_000, 12_000].map((slot) => cluster.primaryOf(slot)));
      return keysLeft(primaries, namespace);
    },
    tenant: (visit) => tenantOfRedis(cluster.nodes, visit),
    versions: { redis: await redisVersion(cluster.nodes[0]!) },
    ...(network
      ? { apart: apartOn(network, cluster.nodes, () => cluster.settled()) }
      : { proxies: links.proxies, routesFor: links.routesFor }),
    [Symbol.asyncDispose]: async () => {
      await links[Symbol.asyncDispose]();
      await cluster[Symbol.asyncDispose]();
    },
  };
}

/** Five independent servers, of which the first is the one that suffers: the others must do. */
async function startRedlock(): Promise<Target> {
  const five = await RedlockNodes.start(5);
  const servers = five.nodes.map(({ server }) => server);
  const links = new LinkProxies(servers);
  const [{ server, clock, forget }] = five.nodes as [RedlockNode];
  return {
    urlFor: async (worker) =>
      `redlock://${Object.values(await links.routesFor(worker))
        .map(onLoopback)
        .join(',')}`,
    deleteSome: (namespace) => deleteOneKey(server, namespace),
    server,
    proxies: links.proxies,
    ...(clock && { clock }),
    redis: (...words) => command(server, ...words),
    tenant: (visit) => tenantOfRedis(servers, visit),
    forget,
    leftovers: (namespace) => keysLeft(servers, namespace),
    versions: { redis: await redisVersion(server) },
    [Symbol.asyncDispose]: async () => {
      await links[Symbol.asyncDispose]();
      await five[Symbol.asyncDispose]();
    },
  };
}

function onLoopback(port: number): string {
  return `127.0.0.1:${port}`;
}

const PASSWORD = 'canary-in-the-coal-mine';

async function deleteOneKey(server: Where, namespace: string): Promise<void> {
  const keys = (await command(server, 'KEYS', `${namespace}:*`)) as string[];
  const key = keys[Math.floor(Math.random() * keys.length)];
  if (key !== undefined) await command(server, 'DEL', key);
}

/** The tables of the SQLite engine, by hand. */
class Rows implements Disposable {
  readonly #database: InstanceType<typeof DatabaseSync>;

  constructor(file: string) {
    this.#database = new DatabaseSync(file);
    this.#database.exec('PRAGMA busy_timeout = 5000');
  }

  /** All of them: a single row is half of a line, which no operator could take for the whole. */
  deleteAll(): void {
    this.#database.exec('BEGIN IMMEDIATE; DELETE FROM claim; DELETE FROM line; DELETE FROM session; COMMIT');
  }

  addOdd({ namespace, names, random }: Visit): void {
    const [text, session, name] = [random.pick(GARBAGE), `${STRANGER} ${random.next()}`, strangeName(random)];
    const number = random.pick([-1, 0, 1e300, 'NaN', 2 ** 62]);
    const add = (table: string, ...values: unknown[]): void => {
      const marks = values.map(() => '?').join(', ');
      this.#database.prepare(`INSERT OR REPLACE INTO ${table} VALUES (${marks})`).run(...(values as string[]));
    };
    add('session', session, random.pick([namespace, STRANGER]), text, number, text, text, number, 0, number);
    add('watch', session, text, number, number);
    add('line', namespace, 'lock', name, number, number, number);
    const claim = (line: string, held: number): void =>
      add(
        'claim',
        `${session} of nobody`,
        `${session} ${line}`,
        number,
        namespace,
        'lock',
        line,
        number,
        number,
        number,
        held,
        number,
        text,
        text,
      );
    claim(name, 1);
    claim(random.pick(names), random.int(2));
    add('register', namespace, name, Buffer.from(text), 5, number, 0, 0, null);
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}

/** On each of these servers: to every channel that anybody listens to, and keys of every type that begin like ours. */
async function tenantOfRedis(servers: readonly Where[], visit: Visit): Promise<void> {
  for (const server of servers) {
    // A node of a cluster refuses the keys of others.
    const ask = (...words: string[]): Promise<unknown> => command(server, ...words).catch(() => undefined);
    const overheard: string[] = [];
    const ear = new Redis({ ...addressOf(server), retryStrategy: () => null });
    ear.on('error', () => {});
    ear.on('pmessage', (_pattern: string, _channel: string, text: string) => void overheard.push(text));
    await ear.psubscribe('*').catch(() => {});
    const channels = ((await ask('PUBSUB', 'CHANNELS', '*')) ?? []) as string[];
    for (const channel of channels) for (const message of messages(visit)) await ask('PUBLISH', channel, message);
    for (const channel of channels)
      for (const message of replays(visit, overheard)) await ask('PUBLISH', channel, message);
    for (const channel of ((await ask('PUBSUB', 'SHARDCHANNELS', '*')) ?? []) as string[])
      for (const message of messages(visit)) await ask('SPUBLISH', channel, message);
    ear.disconnect();
    const key = `${visit.namespace}:${strangeName(visit.random)}`;
    const value = visit.random.pick(GARBAGE);
    await ask('SET', `${key}:text`, value);
    await ask('HSET', `${key}:state`, value, value);
    await ask('RPUSH', `${key}:list`, value);
  }
}

/** What the script and the connections rest on. */
function settingsOfRedis(server: Where): readonly OddSetting[] {
  const normal = new Map<string, string>();
  return oddSettings(
    {
      timeout: '1',
      appendfsync: 'no',
      'hash-max-listpack-entries': '0',
      'notify-keyspace-events': 'KEA',
      'busy-reply-threshold': '1',
    },
    async (name, value) => {
      const [, before = ''] = (await command(server, 'CONFIG', 'GET', name)) as string[];
      normal.set(name, normal.get(name) ?? before);
      await command(server, 'CONFIG', 'SET', name, value);
    },
    (name) => command(server, 'CONFIG', 'SET', name, normal.get(name) ?? ''),
  );
}

/** A shard without sessions keeps one key for its tokens, and nothing in it but that. */
async function keysLeft(servers: readonly Where[], namespace: string): Promise<string[]> {
  const left: string[] = [];
  for (const server of servers) {
    for (const key of (await command(server, 'KEYS', `${namespace}:*`)) as string[]) {
      if (!key.endsWith(':state')) left.push(key);
      else if (Number(await command(server, 'HLEN', key)) > 1) left.push(`${key} with more than its tokens`);
    }
  }
  return left;
}

async function redisVersion(server: Where): Promise<string> {
  return (await info(server, 'INFO', 'server')).get('redis_version') ?? 'unknown';
}
