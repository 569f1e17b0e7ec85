/**
 * ZooKeeper as a lock server, with a client of our own (client/). The protocol is protocol.ts, the names of nodes are keys.ts,
 * and what a process has there is session.ts.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../core/clock.js';
import type {
  Engine,
  EngineLine,
  EngineSetup,
  EngineSource,
  LineQuery,
  OpenOptions,
  Registers,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { SwappedRegisters } from '../../kit/swapped-registers.js';
import { parseEngineUrl, placeOf } from '../../kit/url.js';
import { ZooKeeperClient, type ZooKeeperClientOptions } from './client/client.js';
import type { Tls } from './client/connection.js';
import { explained } from './errors.js';
import { findClaim, listLines } from './listing.js';
import { post } from './mailbox.js';
import { type KeyOf, Paths } from './keys.js';
import { RegisterNodes } from './registers.js';
import { openSession } from './session.js';
import { traits } from './traits.js';
import { FILE_PARAMS, type ZooKeeperUrl, zookeeperUrl } from './url.js';

export interface ZooKeeperOptions {
  /** Digest authentication; nodes that we make are then for this user alone. They win over those in the URL. */
  readonly user?: string;
  readonly password?: string;
  /** Certificates in PEM. For hosts without a URL this is what switches TLS on. */
  readonly tls?: Tls;
  /**
   * The node of a lock: the path that Curator's InterProcessMutex and InterProcessReadWriteLock are made with.
   * Default: `/<namespace>/lock/<name>`, with the name percent-encoded. Two names must never give the same path.
   */
  readonly key?: KeyOf;
}

/**
 * Locks in ZooKeeper 3.6 or newer. No client library is needed.
 *
 * @example
 * const locks = new Holdfast(zookeeper('zookeeper://h1:2181,h2,h3/services'));
 * const same = new Holdfast(zookeeper(['h1:2181', 'h2', 'h3/services'], { user: 'locks', password }));
 */
export function zookeeper(urlOrHosts: string | readonly string[], options: ZooKeeperOptions = {}): EngineSource {
  const { tls } = options;
  const url =
    typeof urlOrHosts === 'string' ? urlOrHosts : `${tls ? 'zookeepers' : 'zookeeper'}://${urlOrHosts.join(',')}`;
  const engineUrl = parseEngineUrl(url);
  const parsed = zookeeperUrl(engineUrl);
  if (tls && !parsed.tls) throw new ConfigError("'tls' is for 'zookeepers://': 'zookeeper://' is not encrypted.");
  return { ...zookeeperFromUrl(parsed, options), place: placeOf(engineUrl) };
}

export function zookeeperFromUrl(url: ZooKeeperUrl, options: ZooKeeperOptions = {}): EngineSource {
  const { user = url.user, password = url.password, key } = options;
  return {
    traits,
    connect: async ({ namespace, clock }: EngineSetup) => {
      const tls = url.tls ? { ...(await certificates(url)), ...options.tls } : undefined;
      const servers = url.hosts.map((host) => ({ ...host, tls }));
      const digest = user === undefined ? undefined : `${user}:${password ?? ''}`;
      return new ZooKeeperEngine({ servers, digest, chroot: url.chroot }, new Paths(namespace, key), clock);
    },
  };
}

async function certificates({ files }: ZooKeeperUrl): Promise<Tls> {
  const read = async (param: (typeof FILE_PARAMS)[number]): Promise<[string, Buffer][]> => {
    const file = files[param];
    if (file === undefined) return [];
    try {
      return [[param, await readFile(file)]];
    } catch (error) {
      throw new ConfigError(`zookeepers: the file of '${param}' can't be read.`, { cause: error });
    }
  };
  return Object.fromEntries((await Promise.all(FILE_PARAMS.map(read))).flat());
}

type Connecting = Omit<ZooKeeperClientOptions, 'timeoutMs' | 'listener' | 'random'>;

/** Of the session for everything that is no claim. Nothing depends on how long it lives. */
const DESK_TIMEOUT_MS = 10_000;

class ZooKeeperEngine implements Engine {
  readonly registers: Registers;
  readonly #connecting: Connecting;
  readonly #paths: Paths;
  readonly #clock: Clock;
  /** For what belongs to no session: listings, evictions and registers. */
  #desk: Promise<ZooKeeperClient> | undefined;

  constructor(connecting: Connecting, paths: Paths, clock: Clock) {
    this.#connecting = connecting;
    this.#paths = paths;
    this.#clock = clock;
    this.registers = new SwappedRegisters(new RegisterNodes(() => this.#atDesk(), paths), clock);
  }

  open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const setup = { client: this.#connecting, paths: this.#paths, clock: this.#clock, listener };
    return explained(openSession(setup, options));
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    yield* listLines(await this.#atDesk(), this.#paths, query);
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const client = await this.#atDesk();
    const found = await findClaim(client, this.#paths, name, claimId);
    if (!found) return false;
    const at = { mailbox: this.#paths.session(found.session), claim: found.path };
    return explained(post(client, at, [claimId, reason]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const desk = await this.#desk?.catch(() => undefined);
    await desk?.close();
  }

  /** Made when it is needed, and made anew when its session has expired. */
  #atDesk(): Promise<ZooKeeperClient> {
    this.#desk ??= explained(this.#openDesk());
    const desk = this.#desk;
    desk.catch(() => this.#leaveDesk(desk));
    return desk;
  }

  async #openDesk(): Promise<ZooKeeperClient> {
    const client: ZooKeeperClient = new ZooKeeperClient({
      ...this.#connecting,
      timeoutMs: DESK_TIMEOUT_MS,
      random: () => this.#clock.random(),
      pings: true,
      listener: { expired: () => (this.#desk = undefined) },
    });
    try {
      await client.open(DESK_TIMEOUT_MS / 3);
      return client;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  #leaveDesk(desk: Promise<ZooKeeperClient>): void {
    if (this.#desk === desk) this.#desk = undefined;
  }
}
