/**
 * What is done to a run, one fault at a time, and where it is meaningful. A fault is over when `strike` resolves; what it
 * did stands in the history, between its begin and its end.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Holdfast, Traits } from 'holdfast';
import type { Random } from '../simulation/random.js';
import type { ClockShim } from '../servers/clock-shim.js';
import type { Fault } from '../servers/fault-proxy.js';
import { type Network, whyNoNetwork } from '../servers/network.js';
import { type FaultEvent, NOBODY, type Property } from './history.js';
import type { OddSetting } from './odd-settings.js';
import type { Target, TargetKind } from './targets.js';
import type { ToWorker } from './worker-setup.js';

export interface Victim {
  /** With its incarnation. */
  readonly id: string;
  readonly seat: string;
  readonly pid: number;
  readonly clock: ClockShim | undefined;
  tell(message: ToWorker): void;
  /** Ends it with SIGKILL and puts another in its place. */
  replace(): Promise<void>;
}

type FaultDetails = Pick<FaultEvent, 'detail' | 'isolated' | 'harmless' | 'only'>;

export interface Scene {
  readonly random: Random;
  readonly ttlMs: number;
  readonly target: Target;
  readonly traits: Traits;
  readonly observer: Holdfast | undefined;
  readonly namespace: string;
  readonly names: readonly string[];
  victims(): readonly Victim[];
  /** Writes begin and end around what happens to `target`: a worker, `server` or `link`. */
  during(nemesis: string, target: string, fault: () => Promise<void>, more?: FaultDetails): Promise<void>;
  instant(nemesis: string, target: string, more?: FaultDetails): void;
}

export interface Nemesis {
  readonly about: string;
  /** It strikes proxies: connections of workers have to go through them. */
  readonly onLinks?: boolean;
  /** Everything has to be on a host of its own, or there is no network to lose. */
  readonly apart?: boolean;
  /** What no engine promises under it: counted, not judged. */
  readonly spares?: readonly Property[];
  /** Why it can't be run there. */
  whyNot(target: Target, kind: TargetKind, traits: Traits): string | undefined;
  /** Absent: the workers do it themselves. */
  readonly strike?: (scene: Scene) => Promise<void>;
}

const ONE_PROCESS = 'all of its workload is one process';
const NO_SERVER = 'it has no server';
const NO_PROXY = 'no proxy is before its servers';

const onWorkers = (_target: Target, { processes }: TargetKind): string | undefined =>
  processes ? undefined : ONE_PROCESS;
const onAnyServer = ({ server, leader }: Target): string | undefined => (server || leader ? undefined : NO_SERVER);
const onServer = ({ server }: Target): string | undefined => (server ? undefined : NO_SERVER);
const onRedis = ({ redis }: Target): string | undefined => (redis ? undefined : 'it is no Redis');
const onLinks = ({ proxies, server, leader }: Target): string | undefined =>
  proxies ? undefined : server || leader ? NO_PROXY : NO_SERVER;

/** What can be said before anything is started. */
export function whyNotApart({ startApart, processes }: TargetKind): string | undefined {
  if (!processes) return ONE_PROCESS;
  return startApart ? whyNoNetwork() : 'it is not set up on hosts of its own';
}

export const NEMESES: Readonly<Record<string, Nemesis>> = {
  stall: {
    about: 'a holder blocks its event loop for 2 ttl, before or after its last check',
    whyNot: () => undefined,
  },
  pause: {
    about: 'a worker is stopped (SIGSTOP) for up to 2 ttl',
    whyNot: onWorkers,
    async strike(scene) {
      const { id, pid } = scene.random.pick(scene.victims());
      await scene.during('pause', id, async () => {
        process.kill(pid, 'SIGSTOP');
        await sleep(scene.random.between(0.5, 2) * scene.ttlMs);
        process.kill(pid, 'SIGCONT');
      });
    },
  },
  kill: {
    about: 'a worker is killed (SIGKILL) and another comes',
    whyNot: onWorkers,
    async strike(scene) {
      const victim = scene.random.pick(scene.victims());
      scene.instant('kill', victim.id);
      await victim.replace();
    },
  },
  crowd: {
    about: 'two hundred waiters come, and go before they are served',
    whyNot: () => undefined,
    async strike(scene) {
      const victim = scene.random.pick(scene.victims());
      scene.instant('crowd', victim.id);
      victim.tell({ tell: 'crowd', waiters: 200 });
      await sleep(scene.ttlMs);
    },
  },
  'client-clock': {
    about: 'the wall clock of a worker jumps by up to a minute',
    whyNot: onWorkers,
    async strike(scene) {
      const { id, clock } = scene.random.pick(scene.victims());
      const ms = Math.round(scene.random.between(-60_000, 60_000));
      scene.instant('client-clock', id, { detail: `${ms} ms` });
      clock?.jumpWall(ms);
      await sleep(scene.ttlMs / 2);
    },
  },
  evict: {
    about: 'a claim is evicted by an operator',
    whyNot: ({ observerUrl }, _kind, { listing }) =>
      !listing ? 'it lists no claims' : observerUrl ? undefined : ONE_PROCESS,
    async strike(scene) {
      const name = scene.random.pick(scene.names);
      // Other faults may keep it from the engine: then nobody is evicted, or it is not known.
      const line = await scene
        .observer!.mutex(name)
        .inspect()
        .catch(() => undefined);
      const claim = line?.claims[0];
      if (!claim) return;
      scene.instant('evict', 'server', { only: name });
      await scene.observer!.evict(name, claim.id, 'nemesis').catch(() => {});
    },
  },
  hang: {
    about:
      'the server, or the one that leads, is stopped (SIGSTOP) for up to 2 ttl; a leader long enough to be replaced',
    whyNot: onAnyServer,
    async strike(scene) {
      const { server = await scene.target.leader!() } = scene.target;
      await scene.during('hang', 'server', async () => {
        await server.pause();
        await sleep(scene.random.between(0.2, scene.target.server ? 2 : 8) * scene.ttlMs);
        server.resume();
      });
      if (!scene.target.server) await sleep(3 * scene.ttlMs);
    },
  },
  restart: {
    about: 'the server is killed and started again with its memory',
    whyNot: onServer,
    async strike(scene) {
      const { server } = scene.target;
      await scene.during('restart', 'server', async () => {
        await server!.kill();
        await sleep(scene.random.between(0, 1) * scene.ttlMs);
        await server!.restart();
      });
      await sleep(2 * scene.ttlMs);
    },
  },
  'restart-empty': {
    about: 'the server is killed and started again without its memory',
    spares: ['fifo'],
    whyNot: ({ forget }) => (forget ? undefined : NO_SERVER),
    async strike(scene) {
      const { server, forget } = scene.target;
      await scene.during('restart-empty', 'server', async () => {
        await server!.kill();
        await forget!();
        await server!.restart();
      });
      await sleep(2 * scene.ttlMs);
    },
  },
  failover: {
    about: 'the primary is killed and a replica takes over',
    spares: ['fifo'],
    whyNot: ({ failover }) => (failover ? undefined : 'it has no replicas'),
    async strike(scene) {
      await scene.during('failover', 'server', () => scene.target.failover!());
      await sleep(2 * scene.ttlMs);
    },
  },
  'server-clock': {
    about: 'the wall clock of the server jumps ahead and back by more than the ttl',
    spares: ['belief', 'fifo'],
    whyNot: ({ clock, server, leader }) =>
      clock ? undefined : server || leader ? 'no shim is before its servers' : 'it judges no expiry by a wall clock',
    async strike(scene) {
      const ms = scene.random.pick([-1, 1]) * scene.random.between(2, 10) * scene.ttlMs;
      scene.instant('server-clock', 'server', { detail: `${Math.round(ms)} ms` });
      scene.target.clock!.jumpWall(Math.round(ms));
      await sleep(3 * scene.ttlMs);
    },
  },
  flush: {
    about: 'FLUSHALL',
    spares: ['belief', 'fifo'],
    whyNot: onRedis,
    async strike(scene) {
      scene.instant('flush', 'server');
      await scene.target.redis!('FLUSHALL');
      await sleep(2 * scene.ttlMs);
    },
  },
  delete: {
    about: 'a part of what is stored is deleted: one of the keys, a row',
    spares: ['belief', 'fifo'],
    whyNot: ({ deleteSome }, { processes }) =>
      deleteSome ? undefined : processes ? 'nothing that is stored can be deleted in part' : ONE_PROCESS,
    async strike(scene) {
      await scene.during('delete', 'server', () => scene.target.deleteSome!(scene.namespace));
      await sleep(2 * scene.ttlMs);
    },
  },
  'hostile-tenant': {
    about: 'a stranger adds garbage beside what is ours, and sends garbage and forged grants to whoever listens',
    whyNot: ({ tenant }, { processes }) =>
      tenant ? undefined : processes ? 'nobody else can write there' : ONE_PROCESS,
    async strike(scene) {
      const { random, namespace, names } = scene;
      await scene.during('hostile-tenant', NOBODY, async () => {
        for (let visit = 0; visit < 5; visit += 1) {
          const claims = await claimsNow(scene);
          // Other faults may keep it from the engine, as they keep everybody.
          await scene.target.tenant!({ random, namespace, names, claims }).catch(() => {});
          await sleep(random.between(0, 0.1) * scene.ttlMs);
        }
      });
      await sleep(random.between(0, 0.5) * scene.ttlMs);
    },
  },
  'odd-settings': {
    about: 'an operator sets what we rely on to something else, one setting at a time, and ends connections',
    whyNot: ({ oddSettings }) => (oddSettings ? undefined : 'it has no settings that we rely on'),
    async strike(scene) {
      const { endConnections, redis } = scene.target;
      const { name, set, reset, refused } = nextSetting(scene);
      // Connections are ended with it, and where they are the locks that alone costs them.
      const costly = refused || scene.traits.liveness === 'connection';
      const apply = async (change: () => Promise<unknown>): Promise<void> => {
        await change().catch(() => {});
        if (endConnections) await endConnections().catch(() => {});
        else await redis?.('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes').catch(() => {});
      };
      await scene.during(
        'odd-settings',
        'server',
        async () => {
          await apply(set);
          await sleep(scene.random.between(0.5, 2) * scene.ttlMs);
          await apply(reset);
        },
        { detail: name, ...(!costly && { harmless: true }) },
      );
      await sleep(scene.ttlMs);
    },
  },
  'script-flush': {
    about: 'SCRIPT FLUSH',
    whyNot: onRedis,
    async strike(scene) {
      scene.instant('script-flush', 'server');
      await scene.target.redis!('SCRIPT', 'FLUSH');
      await sleep(scene.random.between(0, 0.3) * scene.ttlMs);
    },
  },
  'client-kill': {
    about: 'the server ends connections, those of subscribers or all others',
    whyNot: (target) => (target.endConnections ? undefined : onRedis(target)),
    async strike(scene) {
      const { endConnections, redis } = scene.target;
      scene.instant('client-kill', 'server');
      if (endConnections) await endConnections();
      else await redis!('CLIENT', 'KILL', 'TYPE', scene.random.pick(['normal', 'pubsub']), 'SKIPME', 'yes');
      await sleep(scene.random.between(0, 0.5) * scene.ttlMs);
    },
  },
  cut: {
    about: 'connections of a worker are reset, and new ones too',
    onLinks: true,
    whyNot: onLinks,
    strike: (scene) => onLink(scene, 'cut', { mode: 'reset' }),
  },
  freeze: {
    about: 'nothing goes through between a worker and the server, and nothing is lost',
    onLinks: true,
    whyNot: onLinks,
    strike: (scene) => onLink(scene, 'freeze', { mode: 'freeze' }),
  },
  'lost-replies': {
    about: 'requests of a worker arrive, replies do not',
    onLinks: true,
    whyNot: onLinks,
    strike: (scene) => onLink(scene, 'lost-replies', { mode: 'lose', lose: 'replies' }),
  },
  'lost-requests': {
    about: 'requests of a worker do not arrive',
    onLinks: true,
    whyNot: onLinks,
    strike: (scene) => onLink(scene, 'lost-requests', { mode: 'lose', lose: 'requests' }),
  },
  delay: {
    about: 'everything between a worker and the server takes up to a third of the ttl longer',
    onLinks: true,
    whyNot: onLinks,
    strike: (scene) => onLink(scene, 'delay', { mode: 'delay', ms: scene.ttlMs / 6, jitterMs: scene.ttlMs / 6 }),
  },
  partition: {
    about: 'the network is parted: a worker from the server, or the leader and some workers from all the others',
    apart: true,
    whyNot: (_target, kind) => whyNotApart(kind),
    strike: (scene) => onNetwork(scene, 'partition', ['in', 'out']),
  },
  'one-way': {
    about: 'the same, but only what is sent in one direction is lost',
    apart: true,
    whyNot: (_target, kind) => whyNotApart(kind),
    strike: (scene) => onNetwork(scene, 'one-way', [scene.random.pick(['in', 'out'])]),
  },
};

/** How many settings of a target have had their turn. */
const turns = new WeakMap<Target, number>();

function nextSetting({ target, random }: Scene): OddSetting {
  const settings = target.oddSettings!;
  const turn = turns.get(target) ?? random.int(settings.length);
  turns.set(target, turn + 1);
  return settings[turn % settings.length]!;
}

/** Ids of claims on one of the names, as everybody can see them where lines can be listed. */
async function claimsNow({ observer, random, names }: Scene): Promise<string[]> {
  const line = await observer
    ?.mutex(random.pick(names))
    .inspect()
    .catch(() => undefined);
  return line?.claims.map(({ id }) => id) ?? [];
}

/** Which direction of what crosses the border is lost. */
type Ways = readonly ('in' | 'out')[];

/** As the network sees it: whatever is sent is lost, nobody is told, and connections stay open on both sides. */
function onNetwork(scene: Scene, nemesis: string, ways: Ways): Promise<void> {
  return scene.target.server ? aWorkerApart(scene, nemesis, ways) : theLeaderApart(scene, nemesis, ways);
}

async function aWorkerApart(scene: Scene, nemesis: string, ways: Ways): Promise<void> {
  const { network, workers } = scene.target.apart!;
  const { seat, id } = scene.random.pick(scene.victims());
  const part = async (): Promise<void> => {
    await lose(network, [workers.get(seat)!.address], [scene.target.server!.host], ways);
    await sleep(scene.random.between(0.2, 3) * scene.ttlMs);
    await network.heal();
  };
  await scene.during(nemesis, id, part, { detail: ways.join(' and ') });
}

/** {the leader, some workers} | {its replicas, who elects, the other workers}, until another leads and the old one knows. */
async function theLeaderApart(scene: Scene, nemesis: string, ways: Ways): Promise<void> {
  const { network, workers, servers, settled } = scene.target.apart!;
  const leader = await scene.target.leader!();
  const victims = scene.victims();
  const alone = scene.random.pick(victims);
  // At least one on each side.
  const mates = victims.filter((victim) => victim === alone || scene.random.chance(0.4)).slice(0, victims.length - 1);
  const addresses = (some: readonly Victim[]): string[] => some.map(({ seat }) => workers.get(seat)!.address);
  const inside = [leader.host, ...addresses(mates)];
  const outside = [
    ...servers.filter((server) => server !== leader).map(({ host }) => host),
    ...addresses(victims.filter((victim) => !mates.includes(victim))),
  ];
  const part = async (): Promise<void> => {
    await lose(network, inside, outside, ways);
    await sleep(scene.random.between(1, 10) * scene.ttlMs);
    await network.heal();
    await settled();
  };
  const isolated = mates.map(({ id }) => id);
  await scene.during(nemesis, 'server', part, {
    detail: `${ways.join(' and ')}, with ${isolated.join(', ')}`,
    isolated,
  });
  await sleep(2 * scene.ttlMs);
}

async function lose(
  network: Network,
  inside: readonly string[],
  outside: readonly string[],
  ways: Ways,
): Promise<void> {
  if (ways.includes('out')) await network.lose(inside, outside);
  if (ways.includes('in')) await network.lose(outside, inside);
}

async function onLink(scene: Scene, nemesis: string, fault: Fault): Promise<void> {
  const { seat, id } = scene.random.pick(scene.victims());
  const all = [scene.target.proxies!.get(seat)!].flat();
  const struck = scene.random.chance(0.5) ? all : [scene.random.pick(all)];
  await scene.during(
    nemesis,
    id,
    async () => {
      for (const proxy of struck) proxy.set(fault);
      await sleep(scene.random.between(0.2, 2) * scene.ttlMs);
      for (const proxy of struck) proxy.heal();
    },
    all.length > 1 ? { detail: `${struck.length} of ${all.length} links` } : {},
  );
}
