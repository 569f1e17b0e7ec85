import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { ConfigError } from '../../core/errors.js';
import { decode, type EngineUrl } from '../../kit/url.js';
import { Names } from '../../sql/postgres-names.js';

export const PARAMS = ['schema', 'tablePrefix', 'migrate', 'sslmode', 'sslrootcert', 'application_name'] as const;

export interface PostgresUrl {
  readonly host: string;
  readonly port: number;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string | undefined;
  /** As `pg` takes it. */
  readonly ssl: false | object;
  readonly applicationName: string;
  readonly names: Names;
  readonly migrate: boolean;
}

export function postgresUrl({ hosts, user, password, path, params }: EngineUrl): PostgresUrl {
  const [host, ...more] = hosts;
  if (!host || more.length > 0)
    throw new ConfigError("A URL of PostgreSQL has one host: 'postgres://user:password@localhost:5432/database'.");
  const [database = '', ...rest] = path.split('/').slice(1);
  if (rest.length > 0)
    throw new ConfigError("The path of a URL of PostgreSQL is the name of a database: 'postgres://localhost/app'.");
  return {
    host: host.host,
    port: host.port ?? 5_432,
    user,
    password,
    database: database === '' ? undefined : decode(database),
    ssl: ssl(host.host, params.get('sslmode'), params.get('sslrootcert')),
    applicationName: params.get('application_name') ?? 'holdfast',
    names: new Names({ schema: params.get('schema'), tablePrefix: params.get('tablePrefix') }),
    migrate: flag(params.get('migrate')),
  };
}

/**
 * The modes mean what they mean to psql: `require` encrypts and trusts whoever answers, and is `verify-ca` where a root
 * certificate is given; `verify-ca` wants a certificate of that authority, and `verify-full` one for this host as well.
 */
function ssl(host: string, mode = 'disable', rootCertificate: string | undefined): false | object {
  const ca = rootCertificate === undefined ? undefined : certificateOf(rootCertificate);
  const ofAuthority = { ca, rejectUnauthorized: true, checkServerIdentity: () => undefined };
  switch (mode) {
    case 'disable':
      if (!ca) return false;
      throw new ConfigError(
        "postgres: 'sslrootcert' is of no use with sslmode 'disable', the default. Take 'verify-full'.",
      );
    case 'require':
      return ca ? ofAuthority : { rejectUnauthorized: false };
    case 'verify-ca':
      // Of the authorities that all the world trusts anybody can have a certificate.
      if (!ca) throw new ConfigError("postgres: sslmode 'verify-ca' needs 'sslrootcert'.");
      return ofAuthority;
    case 'verify-full':
      return { ca, rejectUnauthorized: true, checkServerIdentity: isFor(host) };
    default:
      throw new ConfigError("postgres: sslmode is 'disable', 'require', 'verify-ca' or 'verify-full'.");
  }
}

/** By name: of a host that is an address, older versions of `pg` tell Node.js nothing, which then takes any `localhost`. */
function isFor(host: string): (_: string, certificate: PeerCertificate) => Error | undefined {
  return (_, certificate) => checkServerIdentity(host, certificate);
}

function certificateOf(file: string): string {
  try {
    const text = readFileSync(file, 'utf8');
    // Throws where there is none: to Node.js that would be an authority of nobody.
    void new X509Certificate(text);
    return text;
  } catch (error) {
    throw new ConfigError("postgres: the file of 'sslrootcert' can't be read, or is no certificate in PEM.", {
      cause: error,
    });
  }
}

function flag(text = 'true'): boolean {
  if (text !== 'true' && text !== 'false') throw new ConfigError("postgres: migrate is 'true' or 'false'.");
  return text === 'true';
}
