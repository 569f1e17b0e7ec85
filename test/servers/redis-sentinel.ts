/**
 * A Redis primary with replicas, watched by three Sentinels that elect a new primary when it fails.
 *
 *     await using sentinel = await startSentinel();
 *     await sentinel.primary.kill();
 *     await sentinel.settled();
 *     const primary = await sentinel.currentPrimary();
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Host } from './network.js';
import { answersPing, provideRedis, startRedis, unprotected } from './redis.js';
import { command, info } from './resp.js';
import { type Place, type Server, startServer } from './server.js';
import { isAwake, type ServerGroup, startGroup } from './server-group.js';
import { eventually } from './wait.js';

const NAME = 'holdfast';
const SENTINELS = 3;
const QUORUM = 2;
const DOWN_AFTER_MS = 1_000;
const FAILOVER_TIMEOUT_MS = 5_000;

export interface SentinelOptions {
  /** Default: 2. */
  readonly replicas?: number;
  /** More words of the command line of the primary and of every replica, such as `--min-replicas-to-write 1`. */
  readonly args?: readonly string[];
  /** A host for each of the servers. Default: all of them are here. */
  readonly host?: () => Promise<Host>;
}

/** Starts it and waits until a failover would succeed. */
export function startSentinel(options: SentinelOptions = {}): Promise<RedisSentinel> {
  const { replicas: count = 2, args = [] } = options;
  const host = async (): Promise<Host | undefined> => options.host?.();
  // The default waits five seconds for more replicas that might want the same.
  const redisArgs = ['--repl-diskless-sync-delay', '0', ...args];
  return startGroup(async (group) => {
    const [primary] = await group.add([startRedis({ args: redisArgs, host: await host() })]);
    assert(primary !== undefined);
    const replicaArgs = ['--replicaof', primary.host, `${primary.port}`, ...redisArgs];
    const replicas = await group.add(
      Array.from({ length: count }, async () => startRedis({ args: replicaArgs, host: await host() })),
    );
    // A Sentinel looks for replicas when it starts and every ten seconds, so they are attached before it starts.
    await eventually('the replicas are attached', () => mustReplicate(primary, replicas));
    const sentinels = await group.add(Array.from({ length: SENTINELS }, async () => startOne(primary, await host())));
    const sentinel = new RedisSentinel(group, primary, replicas, sentinels);
    await sentinel.settled();
    return sentinel;
  });
}

export class RedisSentinel {
  /** What clients ask the Sentinels for. */
  readonly name = NAME;
  /** The one it began with: after a failover ask `currentPrimary`. */
  readonly primary: Server;
  readonly replicas: readonly Server[];
  readonly sentinels: readonly Server[];
  /** Of the Sentinels, as client libraries want them. */
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly #group: ServerGroup;

  constructor(group: ServerGroup, primary: Server, replicas: readonly Server[], sentinels: readonly Server[]) {
    this.#group = group;
    this.primary = primary;
    this.replicas = replicas;
    this.sentinels = sentinels;
    this.hosts = sentinels.map(({ host, port }) => ({ host, port }));
  }

  /** Whichever of them is the primary. */
  get servers(): readonly Server[] {
    return [this.primary, ...this.replicas];
  }

  /** What a Sentinel says, which is the old one until a failover is done. */
  async currentPrimary(): Promise<Server> {
    const sentinel = this.sentinels.find(isAwake);
    if (sentinel === undefined) throw new Error('no Sentinel runs');
    return this.#primaryBy(sentinel);
  }

  /**
   * The Sentinels agree on a primary that serves, they could fail it over, and every replica is attached to it. Servers
   * that were killed or paused do not count. A former primary that comes back is made a replica only after ten seconds.
   */
  settled(): Promise<void> {
    return eventually('the Sentinels and their Redis are settled', async () => {
      const primary = await this.currentPrimary();
      assert(isAwake(primary), `the primary on port ${primary.port} does not run`);
      const replicas = this.servers.filter((server) => server !== primary && isAwake(server));
      await mustReplicate(primary, replicas);
      const sentinels = this.sentinels.filter(isAwake);
      await Promise.all(
        sentinels.map(async (sentinel) => {
          assert.equal(await this.#primaryBy(sentinel), primary, 'the Sentinels name different primaries');
          await mustSee(sentinel, sentinels, replicas);
        }),
      );
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#group.stop();
  }

  async #primaryBy(sentinel: Server): Promise<Server> {
    const address = await command(sentinel, 'SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME);
    const [host, port] = Array.isArray(address) ? address.map(String) : [];
    const primary = this.servers.find((server) => server.host === host && `${server.port}` === port);
    if (primary === undefined) throw new Error(`a Sentinel names a primary on port ${port}, which is none of these`);
    return primary;
  }
}

async function startOne(primary: Server, host: Host | undefined): Promise<Server> {
  return startServer({
    name: 'sentinel',
    host,
    program: provideRedis(),
    // It keeps what it learns in its configuration, so a restart must find the file as the last run left it.
    prepare: async (place) => {
      if (!existsSync(configFile(place))) await writeFile(configFile(place), configuration(place, primary));
    },
    args: (place) => [configFile(place), '--sentinel', ...unprotected(place)],
    ready: answersPing,
  });
}

function configFile({ data }: Place): string {
  return join(data, 'sentinel.conf');
}

function configuration({ host, port, data }: Place, primary: Server): string {
  const lines = [
    `port ${port}`,
    `bind ${host}`,
    `dir "${data}"`,
    `sentinel monitor ${NAME} ${primary.host} ${primary.port} ${QUORUM}`,
    `sentinel down-after-milliseconds ${NAME} ${DOWN_AFTER_MS}`,
    `sentinel failover-timeout ${NAME} ${FAILOVER_TIMEOUT_MS}`,
  ];
  return `${lines.join('\n')}\n`;
}

async function mustReplicate(primary: Server, replicas: readonly Server[]): Promise<void> {
  assert.equal((await info(primary, 'INFO', 'replication')).get('role'), 'master', `role on port ${primary.port}`);
  await Promise.all(
    replicas.map(async (replica) => {
      const state = await info(replica, 'INFO', 'replication');
      const of = `${state.get('master_host')}:${state.get('master_port')}`;
      assert.equal(of, `${primary.host}:${primary.port}`, `whose replica port ${replica.port} is`);
      assert.equal(state.get('master_link_status'), 'up', `the replica's link on port ${replica.port}`);
    }),
  );
}

/** This Sentinel knows the others and the replicas, and all of them answer it. */
async function mustSee(sentinel: Server, sentinels: readonly Server[], replicas: readonly Server[]): Promise<void> {
  // Answers with an error when there are too few for a failover.
  const quorum = String(await command(sentinel, 'SENTINEL', 'CKQUORUM', NAME));
  assert.match(quorum, new RegExp(`^OK ${sentinels.length} usable`));
  const known = await command(sentinel, 'SENTINEL', 'REPLICAS', NAME);
  const entries = Array.isArray(known) ? known.map(fieldsOf) : [];
  for (const { host, port } of replicas) {
    const flags = entries.find((entry) => entry.get('name') === `${host}:${port}`)?.get('flags');
    assert.equal(flags, 'slave', `how a Sentinel sees the replica on port ${port}`);
  }
}

/** Sentinel lists fields as key, value, key, value. */
function fieldsOf(entry: unknown): Map<string, string> {
  const words = Array.isArray(entry) ? entry.map(String) : [];
  const pairs = words.flatMap((word, index) => (index % 2 === 0 ? [[word, words[index + 1] ?? ''] as const] : []));
  return new Map(pairs);
}
