/**
 * What a URL of etcd says, without any client.
 *
 *     etcd://user:password@h1:2379,h2,h3
 *     etcds://h1,h2,h3?ca=/etc/etcd/ca.pem&cert=/etc/etcd/us.pem&key=/etc/etcd/us.key      TLS; the files are optional
 */
import { ConfigError } from '../../core/errors.js';
import type { EngineUrl } from '../../kit/url.js';

export interface EtcdUrl {
  readonly tls: boolean;
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly user: string | undefined;
  readonly password: string | undefined;
  /** Names of files in PEM. */
  readonly files: { readonly ca?: string; readonly cert?: string; readonly key?: string };
}

const PORT = 2_379;

export const FILE_PARAMS = ['ca', 'cert', 'key'] as const;

export function etcdUrl({ scheme, hosts, path, user, password, params }: EngineUrl): EtcdUrl {
  if ((scheme !== 'etcd' && scheme !== 'etcds') || hosts.length === 0)
    throw new ConfigError("A URL of etcd begins with 'etcd://' or 'etcds://' (TLS) and a host.");
  if (path !== '' && path !== '/')
    throw new ConfigError("A URL of etcd has no path: 'etcd://h1:2379,h2,h3'. What keeps locks apart is 'namespace'.");
  const files = Object.fromEntries(FILE_PARAMS.flatMap((name) => (params.has(name) ? [[name, params.get(name)]] : [])));
  if (scheme === 'etcd' && Object.keys(files).length > 0)
    throw new ConfigError("Certificates are for 'etcds://': 'etcd://' is not encrypted.");
  if ('cert' in files !== 'key' in files)
    throw new ConfigError("A certificate needs its key: give both 'cert' and 'key', or neither.");
  return {
    tls: scheme === 'etcds',
    hosts: hosts.map(({ host, port }) => ({ host, port: port ?? PORT })),
    user,
    password,
    files,
  };
}
