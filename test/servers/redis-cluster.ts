/**
 * A Redis Cluster of real nodes on loopback, and what happens to clusters: failovers, and slots that move.
 *
 *     await using cluster = await startCluster();
 *     const slot = slotOf('{jobs}:1');
 *     await cluster.failover(slot, 'kill');
 *     await cluster.migrateSlot(slot, { during: async () => { … } });
 */
import assert from 'node:assert/strict';
import { type NodeView, owns, shapeOf, viewOf } from './cluster-view.js';
import { SLOTS } from './key-slot.js';
import type { Host } from './network.js';
import { freePort } from './ports.js';
import { startRedis } from './redis.js';
import { command, info } from './resp.js';
import type { Server } from './server.js';
import { isAwake, type ServerGroup, startGroup } from './server-group.js';
import { eventually } from './wait.js';

export { slotOf } from './key-slot.js';

/** A primary that is silent for so long is failed over; with detection and election it takes about twice that. */
const NODE_TIMEOUT_MS = 2_000;
const MIGRATE_TIMEOUT_MS = 5_000;

export interface ClusterOptions {
  /** A cluster elects new primaries by a majority of the primaries: three at least. Default: 3. */
  readonly masters?: number;
  /** Of each primary. Default: 1. */
  readonly replicas?: number;
  /** More words of every node's command line. Default: none. */
  readonly args?: readonly string[];
  /** A host for each node. Default: all of them are here. */
  readonly host?: () => Promise<Host>;
}

export interface MigrateOptions {
  /** Default: some primary that does not own the slot. */
  readonly to?: Server;
  /** How many keys are moved before `during`. Default: half of them, rounded up. */
  readonly keysFirst?: number;
  /** Runs while the slot is half way: requests for keys that have moved, or do not exist, are told to ASK the other. */
  readonly during?: () => Promise<void>;
}

/** Starts it and waits until it serves all slots and every replica is attached. */
export function startCluster(options: ClusterOptions = {}): Promise<RedisCluster> {
  const { masters = 3, replicas = 1, args = [] } = options;
  return startGroup(async (group) => {
    const members = await startMembers(group, masters * (1 + replicas), args, options.host);
    const primaries = members.slice(0, masters);
    await Promise.all(primaries.map((member, index) => takeSlots(member, index, masters)));
    await meet(members);
    const others = members.slice(masters).map((member, index) => ({ member, primary: primaries[index % masters] }));
    await Promise.all(
      others.map(({ member, primary }) => command(member.server, 'CLUSTER', 'REPLICATE', primary?.id ?? '')),
    );
    const cluster = new RedisCluster(group, members);
    await cluster.settled();
    return cluster;
  });
}

export class RedisCluster {
  readonly nodes: readonly Server[];
  /** As client libraries want them. */
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly #group: ServerGroup;
  readonly #members: readonly Member[];

  constructor(group: ServerGroup, members: readonly Member[]) {
    this.#group = group;
    this.#members = members;
    this.nodes = members.map(({ server }) => server);
    this.hosts = this.nodes.map(({ host, port }) => ({ host, port }));
  }

  async primaryOf(slot: number): Promise<Server> {
    return this.#member((await this.#ownerOf(slot)).id).server;
  }

  /** One that is awake; throws when there is none. */
  async replicaOf(slot: number): Promise<Server> {
    const owner = await this.#ownerOf(slot);
    const views = await this.#views();
    const replicas = views.flat().filter(({ flags, primaryId }) => flags.includes('myself') && primaryId === owner.id);
    const [replica] = replicas.map(({ id }) => this.#member(id).server);
    if (replica === undefined) throw new Error(`the primary of slot ${slot} has no replica that runs`);
    return replica;
  }

  /**
   * Every slot is served, every replica has its primary, and all nodes believe the same. Nodes that were killed or
   * paused do not count, but a primary that was has to be replaced first.
   */
  settled(): Promise<void> {
    return eventually('the cluster is settled', async () => {
      const views = await this.#views();
      const shapes = new Set(views.map(shapeOf));
      assert.equal(shapes.size, 1, `the nodes disagree:\n${[...shapes].join('\n\n')}`);
      const awake = new Set(this.#awake().map(({ id }) => id));
      for (const node of views.flat()) mustServe(node, awake);
      await Promise.all(this.#awake().map(({ server }) => mustBeWell(server)));
    });
  }

  /**
   * Makes a replica the slot's primary, and answers with it once the cluster is settled. `kill` crashes the primary, and
   * what it had not yet sent to the replica is lost; `manual` asks the replica to take over, and nothing is.
   */
  async failover(slot: number, how: 'kill' | 'manual'): Promise<Server> {
    const before = await this.primaryOf(slot);
    const replica = await this.replicaOf(slot);
    if (how === 'kill') await before.kill();
    else await command(replica, 'CLUSTER', 'FAILOVER');
    const after = await eventually(`slot ${slot} has another primary`, async () => {
      const primary = await this.primaryOf(slot);
      assert.notEqual(primary, before, `it is still on port ${before.port}`);
      return primary;
    });
    await this.settled();
    return after;
  }

  /** Moves a slot and its keys to another primary, which it answers with. Finishes also when `during` fails. */
  async migrateSlot(slot: number, options: MigrateOptions = {}): Promise<Server> {
    const from = this.#member((await this.#ownerOf(slot)).id);
    const primaries = await this.#primaries();
    const to = primaries.find((member) => member !== from && (options.to ?? member.server) === member.server);
    if (to === undefined) throw new Error(`slot ${slot} can't move: there is no such primary besides its own`);
    const setSlot = (member: Member, ...words: string[]) =>
      command(member.server, 'CLUSTER', 'SETSLOT', slot, ...words);

    // In this order: the first node told to ASK another one must find that it answers.
    await setSlot(to, 'IMPORTING', from.id);
    await setSlot(from, 'MIGRATING', to.id);
    const keys = await keysIn(from, slot);
    await moveKeys(from, to, keys.slice(0, options.keysFirst ?? Math.ceil(keys.length / 2)));
    try {
      await options.during?.();
    } finally {
      await moveKeys(from, to, await keysIn(from, slot));
      // The new owner first: it takes a higher epoch with the slot, and with that its word wins whoever is asked.
      await setSlot(to, 'NODE', to.id);
      const others = primaries.filter((member) => member !== to);
      await Promise.all(others.map((member) => setSlot(member, 'NODE', to.id)));
      await this.settled();
    }
    return to.server;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#group.stop();
  }

  #awake(): Member[] {
    return this.#members.filter(({ server }) => isAwake(server));
  }

  #views(): Promise<NodeView[][]> {
    return Promise.all(this.#awake().map(({ server }) => viewOf(server)));
  }

  /** Nodes that were away may still believe that they own it; the epoch tells who is right. */
  async #ownerOf(slot: number): Promise<NodeView> {
    const owners = (await this.#views()).flat().filter((node) => owns(node, slot));
    const [owner] = owners.sort((a, b) => b.epoch - a.epoch);
    if (owner === undefined) throw new Error(`nobody owns slot ${slot}`);
    return owner;
  }

  async #primaries(): Promise<Member[]> {
    const selves = (await this.#views()).flat().filter(({ flags }) => flags.includes('myself'));
    return selves.filter(({ flags }) => flags.includes('master')).map(({ id }) => this.#member(id));
  }

  #member(id: string): Member {
    const member = this.#members.find((member) => member.id === id);
    if (member === undefined) throw new Error(`${id} is not a node of this cluster`);
    return member;
  }
}

interface Member {
  readonly server: Server;
  readonly busPort: number;
  readonly id: string;
}

async function startMembers(
  group: ServerGroup,
  count: number,
  args: readonly string[],
  host?: () => Promise<Host>,
): Promise<Member[]> {
  const busPorts = new Map<number, number>();
  const servers = await group.add(
    Array.from({ length: count }, async () =>
      startRedis({
        host: await host?.(),
        // The default bus port is 10000 above the port, which may be in use, or beyond the last one.
        choosePort: async () => {
          const [port, busPort] = await Promise.all([freePort(), freePort()]);
          busPorts.set(port, busPort);
          return port;
        },
        args: (place) => [
          ...['--cluster-enabled', 'yes', '--cluster-port', `${busPorts.get(place.port)}`],
          ...['--cluster-node-timeout', `${NODE_TIMEOUT_MS}`, '--cluster-announce-ip', place.host],
          // The default waits five seconds for more replicas that might want the same.
          ...['--repl-diskless-sync-delay', '0'],
          ...args,
        ],
      }),
    ),
  );
  return Promise.all(
    servers.map(async (server) => ({
      server,
      busPort: busPorts.get(server.port) ?? 0,
      id: String(await command(server, 'CLUSTER', 'MYID')),
    })),
  );
}

async function takeSlots({ server }: Member, index: number, masters: number): Promise<void> {
  const boundary = (nth: number): number => Math.floor((nth * SLOTS) / masters);
  await command(server, 'CLUSTER', 'ADDSLOTSRANGE', boundary(index), boundary(index + 1) - 1);
  // Different epochs from the start, or the nodes spend their first seconds on resolving the collision.
  await command(server, 'CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
}

/** Everybody meets everybody: gossip would introduce them too, but takes seconds. */
async function meet(members: readonly Member[]): Promise<void> {
  const pairs = members.flatMap((one, index) => members.slice(index + 1).map((other) => ({ one, other })));
  await Promise.all(
    pairs.map(({ one, other }) =>
      command(one.server, 'CLUSTER', 'MEET', other.server.host, other.server.port, other.busPort),
    ),
  );
  await eventually('all nodes know each other', async () => {
    const views = await Promise.all(members.map(({ server }) => viewOf(server)));
    for (const view of views) {
      const known = view.filter(({ flags, connected }) => connected && !flags.includes('handshake'));
      assert.equal(known.length, members.length, `one knows ${known.length} of ${members.length}`);
    }
  });
}

function mustServe(node: NodeView, awake: ReadonlySet<string>): void {
  if (awake.has(node.id)) {
    const troubles = node.flags.filter((flag) => ['fail', 'fail?', 'handshake', 'noaddr'].includes(flag));
    assert(node.connected && troubles.length === 0, `${node.id} is not connected, or ${troubles.join()}`);
  } else {
    assert(node.slots.length === 0, `${node.id} does not answer and owns slots`);
  }
}

async function mustBeWell(server: Server): Promise<void> {
  const { port } = server;
  assert.equal((await info(server, 'CLUSTER', 'INFO')).get('cluster_state'), 'ok', `the state on port ${port}`);
  // A primary has no such line.
  const link = (await info(server, 'INFO', 'replication')).get('master_link_status') ?? 'up';
  assert.equal(link, 'up', `the replica's link on port ${port}`);
}

async function keysIn({ server }: Member, slot: number): Promise<string[]> {
  const count = Number(await command(server, 'CLUSTER', 'COUNTKEYSINSLOT', slot));
  const keys = await command(server, 'CLUSTER', 'GETKEYSINSLOT', slot, count);
  return Array.isArray(keys) ? keys.map(String) : [];
}

/** Without REPLACE: a key that both have means that the cluster did something it promises not to do. */
async function moveKeys(from: Member, to: Member, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return;
  const destination = [to.server.host, to.server.port, '', 0, MIGRATE_TIMEOUT_MS];
  await command(from.server, 'MIGRATE', ...destination, 'KEYS', ...keys);
}
