/**
 * etcd as a lock server, with a client of our own (client/). The protocol is protocol.ts, the names of keys are keys.ts, and
 * what a process has there is session.ts.
 */
import type { EngineSetup, EngineSource } from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { checkOptions, type Known } from '../../core/options.js';
import { readCertificates, type Tls, urlOfHosts } from '../../kit/certificates.js';
import type { KeyOf } from '../../kit/encoded-name.js';
import { parseEngineUrl, located } from '../../kit/url.js';
import { EtcdClient } from './client/client.js';
import { EtcdEngine } from './engine.js';
import { Keys } from './keys.js';
import { traits } from './traits.js';
import { type EtcdUrl, etcdUrl, SCHEMES } from './url.js';

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

const OPTIONS: Known<EtcdOptions> = { user: true, password: true, tls: true, key: true };

/**
 * Locks in etcd 3.4 or newer. No client library is needed.
 *
 * @example
 * const locks = new Holdfast(etcd('etcd://h1:2379,h2,h3'));
 * const same = new Holdfast(etcd(['h1:2379', 'h2', 'h3'], { user: 'locks', password, tls: { ca } }));
 */
export function etcd(urlOrHosts: string | readonly string[], options: EtcdOptions = {}): EngineSource {
  checkOptions(options, OPTIONS, 'etcd()');
  const { tls } = options;
  const url = urlOfHosts(urlOrHosts, tls, SCHEMES);
  const engineUrl = parseEngineUrl(url);
  const parsed = etcdUrl(engineUrl);
  if (tls && !parsed.tls) throw new ConfigError("'tls' is for 'etcds://': 'etcd://' is not encrypted.");
  return { ...etcdFromUrl(parsed, options), ...located(engineUrl) };
}

export function etcdFromUrl(url: EtcdUrl, options: EtcdOptions = {}): EngineSource {
  const { user = url.user, password = url.password, key } = options;
  return {
    traits,
    connect: async ({ namespace, clock }: EngineSetup) => {
      const tls = url.tls ? { ...(await readCertificates('etcds', url.files)), ...options.tls } : undefined;
      const members = url.hosts.map((host) => ({ ...host, tls }));
      const client = new EtcdClient({ members, user, password, random: () => clock.random() });
      return new EtcdEngine(client, new Keys(namespace, key), clock);
    },
  };
}
