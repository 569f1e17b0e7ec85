/** etcd, one member or several, and its command line. Nothing is synced to disk: a member killed is no machine lost. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { freePort, LOOPBACK } from './ports.js';
import type { Host } from './network.js';
import { type Program, provide } from './provide.js';
import { startGroup } from './server-group.js';
import { type Place, type Server, startServer } from './server.js';
import { eventually } from './wait.js';

const PACKAGES = ['etcd-server', 'etcd-client'];

export interface EtcdOptions {
  /** More words of the command line; later ones win. */
  readonly args?: readonly string[];
  /** Where it runs. Default: here, on loopback. */
  readonly host?: Host | undefined;
  /** Default: http. Its certificates are given by `args`. */
  readonly scheme?: 'http' | 'https';
  /** Default: its health, over http. */
  readonly ready?: (place: Place) => Promise<boolean>;
}

export async function startEtcd(options: EtcdOptions = {}): Promise<Server> {
  const peerPort = await freePort();
  return startMember({ ...options, name: 'm0', peerPort, peers: undefined });
}

interface MemberOptions extends EtcdOptions {
  readonly name: string;
  readonly peerPort: number;
  /** Of the whole cluster: `m0=http://…,m1=http://…`. Absent: it is alone. */
  readonly peers: string | undefined;
}

async function startMember({ name, peerPort, peers, args = [], scheme = 'http', ...rest }: MemberOptions) {
  const program = provide('etcd', PACKAGES);
  return startServer({
    name: 'etcd',
    program,
    host: rest.host,
    // Old versions refuse to run where their environment has a word for them that they do not know.
    args: ({ host, port, data }) => [
      ...['--name', name, '--data-dir', `${data}/etcd`, '--logger', 'zap', '--log-level', 'warn'],
      ...[
        '--listen-client-urls',
        `${scheme}://${host}:${port}`,
        '--advertise-client-urls',
        `${scheme}://${host}:${port}`,
      ],
      ...[
        '--listen-peer-urls',
        `http://${host}:${peerPort}`,
        '--initial-advertise-peer-urls',
        `http://${host}:${peerPort}`,
      ],
      ...['--initial-cluster', peers ?? `${name}=http://${host}:${peerPort}`],
      // A lease then lives for a second at least; with the defaults it is two.
      ...['--heartbeat-interval', '50', '--election-timeout', '500', '--unsafe-no-fsync'],
      ...args,
    ],
    ready: rest.ready ?? isHealthy,
    // A member without quorum does not end by itself for a while.
    stopWithinMs: 2_000,
  });
}

export interface EtcdCluster extends AsyncDisposable {
  readonly members: readonly Server[];
  leader(): Promise<Server>;
  /** Every member that runs is healthy. */
  settled(): Promise<void>;
}

/** Hosts are asked for one by one, where each member has its own. */
export function startEtcdCluster(
  options: EtcdOptions & { readonly size?: number; readonly hosts?: () => Promise<Host> } = {},
): Promise<EtcdCluster> {
  const { size = 3, hosts, ...rest } = options;
  return startGroup(async (group) => {
    const seats = await Promise.all(
      Array.from({ length: size }, async (_, at) => {
        const host = await hosts?.();
        return { name: `m${at}`, peerPort: await freePort(), host, address: host?.address ?? LOOPBACK };
      }),
    );
    const peers = seats.map(({ name, address, peerPort }) => `${name}=http://${address}:${peerPort}`).join(',');
    const members = await group.add(seats.map((seat) => startMember({ ...rest, ...seat, peers })));
    const program = provideEtcdctl();
    return {
      members,
      leader: () => eventually('one leads', () => leaderOf(program, members)),
      settled: () => eventually('all are healthy', () => allHealthy(members)),
      [Symbol.asyncDispose]: () => group.stop(),
    };
  });
}

async function leaderOf(program: Program, members: readonly Server[]): Promise<Server> {
  const leads = async (member: Server): Promise<boolean> => {
    if (!member.running) return false;
    const words = ['--command-timeout=1s', 'endpoint', 'status', '-w', 'json'];
    const printed = await etcdctl(program, member, ...words).catch(() => '[]');
    // Ids have 64 bits, which JSON.parse would round to the same number for neighbours.
    const [, id] = /"member_id":(\d+)/.exec(printed) ?? [];
    const [, leader] = /"leader":(\d+)/.exec(printed) ?? [];
    return id !== undefined && id === leader;
  };
  const answers = await Promise.all(members.map(leads));
  const leader = members[answers.indexOf(true)];
  if (!leader) throw new Error('nobody says to lead');
  return leader;
}

async function allHealthy(members: readonly Server[]): Promise<void> {
  for (const member of members.filter(({ running }) => running))
    if (!(await isHealthy(member).catch(() => false))) throw new Error(`${member.port} is not healthy`);
}

/** It has a leader and can read through it. */
async function isHealthy({ host, port }: Pick<Place, 'host' | 'port'>): Promise<boolean> {
  const response = await fetch(`http://${host}:${port}/health`, { signal: AbortSignal.timeout(2_000) });
  return (await response.text()).includes('"true"');
}

export function provideEtcdctl(): Program {
  return provide('etcdctl', PACKAGES);
}

/** What it prints. */
export async function etcdctl(
  { command, args, env }: Program,
  server: Pick<Server, 'host' | 'port'>,
  ...words: readonly string[]
): Promise<string> {
  const all = [...args, '--endpoints', `${server.host}:${server.port}`, ...words];
  const { stdout } = await promisify(execFile)(command, all, { env: { ...process.env, ...env, ETCDCTL_API: '3' } });
  return stdout;
}
