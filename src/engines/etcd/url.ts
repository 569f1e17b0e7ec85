/**
 * What a URL of etcd says, without any client.
 *
 *     etcd://user:password@h1:2379,h2,h3
 *     etcds://h1,h2,h3?ca=/etc/etcd/ca.pem&cert=/etc/etcd/us.pem&key=/etc/etcd/us.key      TLS; the files are optional
 */
import { ConfigError } from '../../core/errors.js';
import { type CertificateFiles, certificateFiles } from '../../kit/certificates.js';
import type { EngineUrl } from '../../kit/url.js';

export interface EtcdUrl {
  readonly tls: boolean;
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly files: CertificateFiles;
}

const PORT = 2_379;

export const SCHEMES = { plain: 'etcd', secure: 'etcds' };

export function etcdUrl(url: EngineUrl): EtcdUrl {
  const { scheme, hosts, path, user, password } = url;
  if ((scheme !== 'etcd' && scheme !== 'etcds') || hosts.length === 0)
    throw new ConfigError("A URL of etcd begins with 'etcd://' or 'etcds://' (TLS) and a host.");
  if (path !== '' && path !== '/')
    throw new ConfigError("A URL of etcd has no path: 'etcd://h1:2379,h2,h3'. What keeps locks apart is 'namespace'.");
  const files = certificateFiles(url, SCHEMES);
  return {
    tls: scheme === 'etcds',
    hosts: hosts.map(({ host, port }) => ({ host, port: port ?? PORT })),
    user,
    password,
    files,
  };
}
