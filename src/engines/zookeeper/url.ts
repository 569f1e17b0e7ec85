/**
 * What a URL of ZooKeeper says, without any client.
 *
 *     zookeeper://user:password@h1:2181,h2,h3/chroot
 *     zookeepers://h1:2281,h2,h3?ca=/etc/zk/ca.pem&cert=/etc/zk/us.pem&key=/etc/zk/us.key     TLS; the files are optional
 */
import { ConfigError } from '../../core/errors.js';
import { type CertificateFiles, certificateFiles } from '../../kit/certificates.js';
import type { EngineUrl } from '../../kit/url.js';

export interface ZooKeeperUrl {
  readonly tls: boolean;
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  /** `/a/b`, or nothing. */
  readonly chroot: string;
  readonly files: CertificateFiles;
}

const PORT = 2_181;
/** There is none that everybody uses; this is the one of ZooKeeper's own examples. */
const TLS_PORT = 2_281;

export const SCHEMES = { plain: 'zookeeper', secure: 'zookeepers' };

export function zookeeperUrl(url: EngineUrl): ZooKeeperUrl {
  const { scheme, hosts, path, user, password } = url;
  if ((scheme !== 'zookeeper' && scheme !== 'zookeepers') || hosts.length === 0)
    throw new ConfigError("A URL of ZooKeeper begins with 'zookeeper://' or 'zookeepers://' (TLS) and a host.");
  const files = certificateFiles(url, SCHEMES);
  if (user?.includes(':')) throw new ConfigError("A user of ZooKeeper has no ':' in its name.");
  const tls = scheme === 'zookeepers';
  return {
    tls,
    hosts: hosts.map(({ host, port }) => ({ host, port: port ?? (tls ? TLS_PORT : PORT) })),
    user,
    password,
    chroot: checkChroot(path),
    files,
  };
}

function checkChroot(path: string): string {
  const chroot = path.replace(/\/$/, '');
  const parts = chroot.split('/').slice(1);
  if (
    parts.some(
      (part) => part === '' || part === '.' || part === '..' || /[\p{Cc}\p{Cs}\p{Co}\uFFF0-\uFFFF]/u.test(part),
    )
  )
    throw new ConfigError(
      "The path in a URL of ZooKeeper is the node that everything lies under: '/', '/a' or '/a/b'.",
    );
  return chroot;
}
