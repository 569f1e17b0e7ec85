/**
 * ZooKeeper, one server or an ensemble, from Debian's packages: a Java program, so it needs a JRE and a list of jars. Nothing
 * is synced to disk: a server killed is no machine lost.
 */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Host } from './network.js';
import { addressOf, ask, freePort, LOOPBACK, type Where } from './ports.js';
import { type Program, provide, provideTree } from './provide.js';
import { isAwake, startGroup } from './server-group.js';
import { type Place, type Server, startServer } from './server.js';
import { eventually } from './wait.js';

const PACKAGES = ['libzookeeper-java', 'libslf4j-java', 'default-jre-headless'];

const JARS = [
  ...['zookeeper', 'zookeeper-jute', 'commons-cli', 'commons-io', 'metrics-core', 'snappy-java', 'slf4j-api'],
  ...['slf4j-simple', 'findbugs-annotations', 'jackson-annotations', 'jackson-core', 'jackson-databind'],
  ...['netty-buffer', 'netty-codec', 'netty-common', 'netty-handler', 'netty-resolver', 'netty-transport'],
  ...['netty-transport-native-epoll', 'netty-transport-native-unix-common'],
];

/** Half a second: a session is rounded up to whole ticks, and a follower that is silent for a few of them is left. */
const TICK_MS = 500;

export interface ZooKeeperOptions {
  /** More lines of its configuration; later ones win. */
  readonly config?: Readonly<Record<string, string | number>>;
  /** More properties of its Java. */
  readonly properties?: Readonly<Record<string, string>>;
  /** Where it runs. Default: here, on loopback. */
  readonly host?: Host | undefined;
  /** Whether its clients use TLS; what it needs for that is given by `config` and `properties`. Default: no. */
  readonly tls?: boolean;
  readonly ready?: (place: Place) => Promise<boolean>;
}

export function startZooKeeper(options: ZooKeeperOptions = {}): Promise<Server> {
  return startMember({ ...options, id: 0, peers: [] });
}

interface MemberOptions extends ZooKeeperOptions {
  readonly id: number;
  /** Lines of all members of the ensemble, this one's too. Empty: it is alone. */
  readonly peers: readonly string[];
}

async function startMember(options: MemberOptions): Promise<Server> {
  const { id, peers, config, host } = options;
  const program = provideJava(options);
  return startServer({
    name: 'zookeeper',
    program,
    host,
    args: ({ data }) => [join(data, 'zoo.cfg')],
    prepare: async (place) => {
      await mkdir(join(place.data, 'db'), { recursive: true });
      await writeFile(join(place.data, 'zoo.cfg'), configuration(place, options.tls ?? false, { ...config }, peers));
      await writeFile(join(place.data, 'db/myid'), `${id}\n`);
    },
    ready: options.ready ?? (({ host: address, port }) => serves({ host: address, port })),
    // A Java on a busy machine.
    readyWithinMs: 40_000,
    stopWithinMs: 3_000,
  });
}

function configuration(
  { host, port, data }: Place,
  tls: boolean,
  more: Readonly<Record<string, string | number>>,
  peers: readonly string[],
): string {
  const settings = {
    tickTime: TICK_MS,
    initLimit: 20,
    syncLimit: 4,
    dataDir: join(data, 'db'),
    [tls ? 'secureClientPort' : 'clientPort']: port,
    [tls ? 'secureClientPortAddress' : 'clientPortAddress']: host,
    minSessionTimeout: 2 * TICK_MS,
    maxSessionTimeout: 600_000,
    maxClientCnxns: 0,
    ...more,
  };
  const lines = Object.entries(settings).map(([key, value]) => `${key}=${value}`);
  return [...lines, ...peers, ''].join('\n');
}

export interface ZooKeeperEnsemble extends AsyncDisposable {
  readonly members: readonly Server[];
  leader(): Promise<Server>;
  /** Every member that runs follows or leads. */
  settled(): Promise<void>;
}

export interface EnsembleOptions extends ZooKeeperOptions {
  readonly size?: number;
  /** Asked for one by one, where each member has its own. */
  readonly hosts?: () => Promise<Host>;
  /** The port on which member `from` finds the port of member `to` that followers connect to. Default: that one itself. */
  readonly link?: (from: number, to: number, port: number) => Promise<number>;
}

export function startZooKeeperEnsemble(options: EnsembleOptions = {}): Promise<ZooKeeperEnsemble> {
  const { size = 3, hosts, link = async (_from, _to, port) => port, ...rest } = options;
  return startGroup(async (group) => {
    const seats = await Promise.all(
      Array.from({ length: size }, async (_, at) => {
        const host = await hosts?.();
        const [quorum, election] = await Promise.all([freePort(), freePort()]);
        return { id: at + 1, host, address: host?.address ?? LOOPBACK, quorum, election };
      }),
    );
    const peersOf = (from: number): Promise<string[]> =>
      Promise.all(
        seats.map(async ({ id, address, quorum, election }) => {
          const port = id === from ? quorum : await link(from, id, quorum);
          return `server.${id}=${address}:${port}:${election}`;
        }),
      );
    const members = await group.add(
      seats.map(async ({ id, host }) => startMember({ ...rest, id, host, peers: await peersOf(id) })),
    );
    return {
      members,
      leader: () => eventually('one leads', () => leaderOf(members)),
      settled: () => eventually('all serve', () => allServe(members)),
      [Symbol.asyncDispose]: () => group.stop(),
    };
  });
}

async function leaderOf(members: readonly Server[]): Promise<Server> {
  const modes = await Promise.all(
    members.filter(isAwake).map(async (member) => [member, await modeOf(member)] as const),
  );
  const leader = modes.find(([, mode]) => mode === 'leader');
  if (!leader || !modes.some(([, mode]) => mode === 'follower')) throw new Error('nobody leads others');
  return leader[0];
}

async function allServe(members: readonly Server[]): Promise<void> {
  for (const member of members.filter(({ running }) => running))
    if (!(await serves(member))) throw new Error(`${member.port} does not serve`);
}

async function serves(where: Exclude<Where, number>): Promise<boolean> {
  return (await modeOf(where)) !== undefined;
}

/** `standalone`, `leader` or `follower`; undefined: it serves nobody. */
async function modeOf(where: Where): Promise<string | undefined> {
  return /^Mode: (\w+)$/m.exec(await ask(where, 'srvr').catch(() => ''))?.[1];
}

export async function versionOf(where: Where): Promise<string> {
  return /^Zookeeper version: ([^-,]+)/m.exec(await ask(where, 'srvr'))?.[1] ?? 'unknown';
}

/** One of the server's own figures, by its name in `mntr`. */
export async function figureOf(where: Where, name: string): Promise<number> {
  const { host, port } = addressOf(where);
  const socket = connect(port, host, () => socket.write('mntr'));
  let told = '';
  for await (const piece of socket) told += String(piece);
  const [, value] = new RegExp(`^${name}\\t(\\S+)$`, 'm').exec(told) ?? [];
  if (value === undefined) throw new Error(`the server does not tell ${name}`);
  return Number(value);
}

function provideJava(options: ZooKeeperOptions): Program {
  const java = provide('java', PACKAGES);
  // What this system has installed of them is not unpacked again.
  const installed = existsSync(jar('/', 'zookeeper'));
  const tree = installed ? '/' : provideTree(PACKAGES);
  const jars = JARS.map((name) => (existsSync(jar(tree, name)) ? jar(tree, name) : jar('/', name)));
  const properties = {
    'zookeeper.forceSync': 'no',
    'zookeeper.admin.enableServer': 'false',
    'zookeeper.4lw.commands.whitelist': 'srvr,mntr,wchs',
    'zookeeper.skipACL': 'no',
    'org.slf4j.simpleLogger.defaultLogLevel': 'warn',
    ...options.properties,
  };
  return {
    ...java,
    args: [
      ...java.args,
      ...['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:-UsePerfData', '-Xshare:auto'],
      ...Object.entries(properties).map(([key, value]) => `-D${key}=${value}`),
      ...['-cp', jars.join(':'), 'org.apache.zookeeper.server.quorum.QuorumPeerMain'],
    ],
  };
}

function jar(root: string, name: string): string {
  return join(root, 'usr/share/java', `${name}.jar`);
}
