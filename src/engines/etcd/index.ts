/**
 * etcd as a lock server, with a client of our own (client/). The protocol is protocol.ts, the names of keys are keys.ts, and
 * what a process has there is session.ts.
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
import { EtcdClient } from './client/client.js';
import type { Tls } from './client/connection.js';
import { IS, TARGET } from './client/messages.js';
import { explained } from './errors.js';
import { type KeyOf, Keys } from './keys.js';
import { findClaim, listLines } from './listing.js';
import { RegisterKeys } from './registers.js';
import { openSession } from './session.js';
import { traits } from './traits.js';
import { type EtcdUrl, etcdUrl, FILE_PARAMS } from './url.js';

export interface EtcdOptions {
  /** Where the cluster has users. They win over those in the URL. */
  readonly user?: string;
  readonly password?: string;
  /** Certificates in PEM. For hosts without a URL this is what switches TLS on. */
  readonly tls?: Tls;
  /**
   * What stands before `/<lease>` in a lock's keys: the NAME of `etcdctl lock NAME`, the prefix of Go's concurrency.Mutex.
   * Default: `<namespace>/lock/<name>`, with the name percent-encoded. Two names must never give the same key.
   */
  readonly key?: KeyOf;
}

/**
 * Locks in etcd 3.4 or newer. No client library is needed.
 *
 * @example
 * const locks = new Holdfast(etcd('etcd://h1:2379,h2,h3'));
 * const same = new Holdfast(etcd(['h1:2379', 'h2', 'h3'], { user: 'locks', password, tls: { ca } }));
 */
export function etcd(urlOrHosts: string | readonly string[], options: EtcdOptions = {}): EngineSource {
  const { tls } = options;
  const url = typeof urlOrHosts === 'string' ? urlOrHosts : `${tls ? 'etcds' : 'etcd'}://${urlOrHosts.join(',')}`;
  const engineUrl = parseEngineUrl(url);
  const parsed = etcdUrl(engineUrl);
  if (tls && !parsed.tls) throw new ConfigError("'tls' is for 'etcds://': 'etcd://' is not encrypted.");
  return { ...etcdFromUrl(parsed, options), place: placeOf(engineUrl) };
}

export function etcdFromUrl(url: EtcdUrl, options: EtcdOptions = {}): EngineSource {
  const { user = url.user, password = url.password, key } = options;
  return {
    traits,
    connect: async ({ namespace, clock }: EngineSetup) => {
      const tls = url.tls ? { ...(await certificates(url)), ...options.tls } : undefined;
      const members = url.hosts.map((host) => ({ ...host, tls }));
      const client = new EtcdClient({ members, user, password, random: () => clock.random() });
      return new EtcdEngine(client, new Keys(namespace, key), clock);
    },
  };
}

async function certificates({ files }: EtcdUrl): Promise<Tls> {
  const read = async (param: (typeof FILE_PARAMS)[number]): Promise<[string, Buffer][]> => {
    const file = files[param];
    if (file === undefined) return [];
    try {
      return [[param, await readFile(file)]];
    } catch (error) {
      throw new ConfigError(`etcds: the file of '${param}' can't be read.`, { cause: error });
    }
  };
  return Object.fromEntries((await Promise.all(FILE_PARAMS.map(read))).flat());
}

class EtcdEngine implements Engine {
  readonly registers: Registers;
  readonly #client: EtcdClient;
  readonly #keys: Keys;
  readonly #clock: Clock;

  constructor(client: EtcdClient, keys: Keys, clock: Clock) {
    this.#client = client;
    this.#keys = keys;
    this.#clock = clock;
    this.registers = new SwappedRegisters(new RegisterKeys(client, keys), clock);
  }

  open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const setup = { client: this.#client, keys: this.#keys, clock: this.#clock, listener };
    return explained(openSession(setup, options));
  }

  inspect(query: LineQuery): AsyncIterable<EngineLine> {
    return listLines(this.#client, this.#keys, query);
  }

  /** The message is under the claim's own lease, so it goes with it. */
  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const found = await findClaim(this.#client, this.#keys, name, claimId);
    if (!found) return false;
    const { key, lease, createRevision } = found.kv;
    const stands = { target: TARGET.create, result: IS.equal, key, createRevision };
    const inbox = Buffer.from(this.#keys.inbox(lease) + encodeURIComponent(claimId));
    const put = { key: inbox, value: Buffer.from(reason), lease };
    const { succeeded } = await explained(
      this.#client.txn({ compare: [stands], success: [{ put }] }, { withinMs: EVICT_MS, repeatable: true }),
    );
    return succeeded;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
  }
}

const EVICT_MS = 5_000;
