/**
 * ZooKeeper as a lock server, with a client of our own (client/). The protocol is protocol.ts, the names of nodes are keys.ts,
 * and what a process has there is session.ts.
 */
import type { EngineSetup, EngineSource } from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { checkOptions, type Known } from '../../core/options.js';
import { readCertificates, type Tls, urlOfHosts } from '../../kit/certificates.js';
import type { KeyOf } from '../../kit/encoded-name.js';
import { parseEngineUrl, located } from '../../kit/url.js';
import { ZooKeeperEngine } from './engine.js';
import { Paths } from './keys.js';
import { traits } from './traits.js';
import { SCHEMES, type ZooKeeperUrl, zookeeperUrl } from './url.js';

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

const OPTIONS: Known<ZooKeeperOptions> = { user: true, password: true, tls: true, key: true };

/**
 * Locks in ZooKeeper 3.6 or newer. No client library is needed.
 *
 * @example
 * const locks = new Holdfast(zookeeper('zookeeper://h1:2181,h2,h3/services'));
 * const same = new Holdfast(zookeeper(['h1:2181', 'h2', 'h3/services'], { user: 'locks', password }));
 */
export function zookeeper(urlOrHosts: string | readonly string[], options: ZooKeeperOptions = {}): EngineSource {
  checkOptions(options, OPTIONS, 'zookeeper()');
  const { tls } = options;
  const url = urlOfHosts(urlOrHosts, tls, SCHEMES);
  const engineUrl = parseEngineUrl(url);
  const parsed = zookeeperUrl(engineUrl);
  if (tls && !parsed.tls) throw new ConfigError("'tls' is for 'zookeepers://': 'zookeeper://' is not encrypted.");
  return { ...zookeeperFromUrl(parsed, options), ...located(engineUrl) };
}

export function zookeeperFromUrl(url: ZooKeeperUrl, options: ZooKeeperOptions = {}): EngineSource {
  const { user = url.user, password = url.password, key } = options;
  return {
    traits,
    connect: async ({ namespace, clock }: EngineSetup) => {
      const tls = url.tls ? { ...(await readCertificates('zookeepers', url.files)), ...options.tls } : undefined;
      const servers = url.hosts.map((host) => ({ ...host, tls }));
      const digest = user === undefined ? undefined : `${user}:${password ?? ''}`;
      return new ZooKeeperEngine({ servers, digest, chroot: url.chroot }, new Paths(namespace, key), clock);
    },
  };
}
