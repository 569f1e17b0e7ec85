/** Certificates for systems that we connect to ourselves: in the options, or in files that a URL names. */
import { readFile } from 'node:fs/promises';
import type { SecureContextOptions } from 'node:tls';
import { ConfigError } from '../core/errors.js';
import type { EngineUrl } from './url.js';

/** Certificates in PEM: of the authority, and our own where the servers want one. */
export type Tls = Pick<SecureContextOptions, 'ca' | 'cert' | 'key' | 'passphrase'>;

export const FILE_PARAMS = ['ca', 'cert', 'key'] as const;

/** Names of files in PEM. */
export type CertificateFiles = Partial<Record<(typeof FILE_PARAMS)[number], string>>;

/** Where a URL can be of two schemes, of which one is encrypted. */
interface SchemePair {
  readonly plain: string;
  readonly secure: string;
}

/** What a URL says of them. @param pair absent where the scheme does not tell whether it is encrypted. */
export function certificateFiles({ scheme, params }: EngineUrl, pair?: SchemePair): CertificateFiles {
  const files = Object.fromEntries(FILE_PARAMS.flatMap((name) => (params.has(name) ? [[name, params.get(name)]] : [])));
  if (scheme === pair?.plain && Object.keys(files).length > 0)
    throw new ConfigError(`Certificates are for '${pair.secure}://': '${pair.plain}://' is not encrypted.`);
  if ('cert' in files !== 'key' in files)
    throw new ConfigError("A certificate needs its key: give both 'cert' and 'key', or neither.");
  return files;
}

/** @param scheme for the message, where a file can't be read. */
export async function readCertificates(scheme: string, files: CertificateFiles): Promise<Tls> {
  const read = async (param: (typeof FILE_PARAMS)[number]): Promise<[string, Buffer][]> => {
    const file = files[param];
    if (file === undefined) return [];
    try {
      return [[param, await readFile(file)]];
    } catch (error) {
      throw new ConfigError(`${scheme}: the file of '${param}' can't be read.`, { cause: error });
    }
  };
  return Object.fromEntries((await Promise.all(FILE_PARAMS.map(read))).flat());
}

/** The URL of hosts that were given as a list. */
export function urlOfHosts(
  hosts: string | readonly string[],
  tls: Tls | undefined,
  { plain, secure }: SchemePair,
): string {
  return typeof hosts === 'string' ? hosts : `${tls ? secure : plain}://${hosts.join(',')}`;
}
