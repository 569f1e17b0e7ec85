/**
 * Hosts of their own on one machine, so that the network between them can really be lost: each is a network namespace,
 * and all are joined by a router that drops what it is told to, packet by packet, in one direction or in both.
 *
 *     await using network = await Network.start();
 *     const [a, b] = [await network.host(), await network.host()];
 *     await using redis = await startRedis({ host: a });
 *     await network.lose([a.address], [b.address]);     // what a sends to b is lost; what b sends arrives
 *     await network.heal();
 *
 *     this process ──veth──┐
 *     host a ─────veth─────┤ router: `ip rule … blackhole`
 *     host b ─────veth─────┘
 *
 * The namespaces have no names: each belongs to a process that sleeps. When that ends, and it ends with us, the kernel
 * removes the namespace with all that is in it, and the interface that we had to the router. Nothing can be left over.
 * It needs root, because only root may make a network.
 */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { readlink } from 'node:fs/promises';
import { promisify } from 'node:util';
import { type Program, provide } from './provide.js';
import { boundToUs } from './server.js';
import { waitFor } from './wait.js';

export interface Host {
  readonly address: string;
  /** The words before a command that run it there. They exec it, so the process id stays the same. */
  readonly enter: readonly string[];
}

/** Why there can be no network of ours; undefined if there can. */
export function whyNoNetwork(): string | undefined {
  if (process.platform !== 'linux') return 'network namespaces need Linux';
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  const tried = spawnSync('unshare', ['--net', 'nsenter', '--version'], { encoding: 'utf8' });
  if (tried.status === 0) return undefined;
  return `network namespaces can't be made: ${(tried.error?.message ?? tried.stderr).trim()}`;
}

/** For benchmarks of networks (RFC 2544), so nobody's network has it. We take 256 addresses of it. */
const RANGE = '198.18';
const SUBNETS_TRIED = 10;
const READY_WITHIN_MS = 30_000;

let networks = 0;

export class Network {
  /** Where this process is. */
  readonly here: Host;
  readonly #ip: Program;
  readonly #router: Space;
  readonly #subnet: string;
  readonly #spaces: Space[];
  readonly #rules = new Set<string>();
  #links = 1;

  static async start(): Promise<Network> {
    const ip = provide('ip', ['iproute2']);
    const router = await Space.start();
    try {
      await run([...router.enter, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']);
      networks += 1;
      const subnet = await linkUs(ip, router, `hf${process.pid}-${networks}`);
      return new Network(ip, router, subnet);
    } catch (error) {
      router.end();
      throw error;
    }
  }

  private constructor(ip: Program, router: Space, subnet: string) {
    this.#ip = ip;
    this.#router = router;
    this.#subnet = subnet;
    this.#spaces = [router];
    this.here = { address: `${subnet}.1`, enter: [] };
  }

  async host(): Promise<Host> {
    const link = this.#links;
    this.#links += 1;
    const space = await Space.start();
    this.#spaces.push(space);
    const [gateway, address] = ends(this.#subnet, link);
    await configure(this.#ip, this.#router, [
      `link add r${link} type veth peer name eth0 netns ${space.pid}`,
      `addr add ${gateway}/31 dev r${link}`,
      `link set r${link} up`,
    ]);
    await configure(this.#ip, space, [
      'link set lo up',
      `addr add ${address}/31 dev eth0`,
      'link set eth0 up',
      `route add default via ${gateway}`,
    ]);
    return { address, enter: space.enter };
  }

  /** What the ones send to the others is lost without a word, until heal(). */
  async lose(from: readonly string[], to: readonly string[]): Promise<void> {
    const pairs = from.flatMap((source) => to.map((target) => `from ${source}/32 to ${target}/32 blackhole`));
    const rules = pairs.filter((rule) => !this.#rules.has(rule));
    for (const rule of rules) this.#rules.add(rule);
    await configure(
      this.#ip,
      this.#router,
      rules.map((rule) => `rule add ${rule}`),
    );
  }

  async heal(): Promise<void> {
    const rules = [...this.#rules];
    this.#rules.clear();
    await configure(
      this.#ip,
      this.#router,
      rules.map((rule) => `rule del ${rule}`),
    );
  }

  /** After everything that runs on its hosts has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const space of this.#spaces) space.end();
  }
}

const keepers = new Set<ChildProcess>();

process.once('exit', () => {
  for (const keeper of keepers) keeper.kill('SIGKILL');
});

/** A namespace, and the process that keeps it. */
class Space {
  readonly pid: number;
  readonly enter: readonly string[];
  readonly #keeper: ChildProcess;

  static async start(): Promise<Space> {
    const [command, ...args] = [...boundToUs(), 'unshare', '--net', 'sleep', 'infinity'];
    const keeper = spawn(command, args, { stdio: 'ignore' });
    keepers.add(keeper);
    keeper.unref();
    const ours = await readlink('/proc/self/ns/net');
    const apart = async (): Promise<boolean> =>
      keeper.exitCode !== null || (await readlink(`/proc/${keeper.pid}/ns/net`).catch(() => ours)) !== ours;
    if (!(await waitFor(apart, READY_WITHIN_MS)) || keeper.pid === undefined || keeper.exitCode !== null)
      throw new Error('a network namespace could not be made');
    return new Space(keeper, keeper.pid);
  }

  private constructor(keeper: ChildProcess, pid: number) {
    this.#keeper = keeper;
    this.pid = pid;
    this.enter = ['nsenter', '--target', `${pid}`, '--net', '--'];
  }

  end(): void {
    this.#keeper.kill('SIGKILL');
    keepers.delete(this.#keeper);
  }
}

/** Each link has two addresses: the router's, and the host's. Ours is the first link. */
function ends(subnet: string, link: number): readonly [string, string] {
  return [`${subnet}.${2 * link}`, `${subnet}.${2 * link + 1}`];
}

/** The route is what reserves a subnet: there can't be two of it. */
async function linkUs(ip: Program, router: Space, name: string): Promise<string> {
  await configure(ip, undefined, [`link add ${name} type veth peer name r0 netns ${router.pid}`]);
  for (let attempt = 1; ; attempt += 1) {
    const subnet = `${RANGE}.${Math.floor(Math.random() * 256)}`;
    const [gateway, address] = ends(subnet, 0);
    await configure(ip, undefined, [`addr add ${address}/31 dev ${name}`, `link set ${name} up`]);
    try {
      await configure(ip, undefined, [`route add ${subnet}.0/24 via ${gateway} dev ${name}`]);
    } catch (error) {
      if (attempt === SUBNETS_TRIED) throw error;
      await configure(ip, undefined, [`addr del ${address}/31 dev ${name}`]);
      continue;
    }
    await configure(ip, router, ['link set lo up', `addr add ${gateway}/31 dev r0`, 'link set r0 up']);
    return subnet;
  }
}

/** One process for all of them, so that a partition comes at once. */
async function configure(ip: Program, space: Space | undefined, lines: readonly string[]): Promise<void> {
  if (lines.length === 0) return;
  await run([...(space?.enter ?? []), ip.command, ...ip.args, '-batch', '-'], {
    env: ip.env,
    input: `${lines.join('\n')}\n`,
  });
}

interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
}

async function run([command = '', ...args]: readonly string[], { env, input = '' }: RunOptions = {}): Promise<void> {
  const running = promisify(execFile)(command, args, { env: { ...process.env, ...env } });
  // Who needs no input may end before it has read it.
  running.child.stdin?.on('error', () => {}).end(input);
  await running;
}
