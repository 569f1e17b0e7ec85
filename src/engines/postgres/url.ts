import { readFileSync } from 'node:fs';
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
    ssl: ssl(params.get('sslmode'), params.get('sslrootcert')),
    applicationName: params.get('application_name') ?? 'holdfast',
    names: new Names({ schema: params.get('schema'), tablePrefix: params.get('tablePrefix') }),
    migrate: flag(params.get('migrate')),
  };
}

/** The modes mean what they mean to psql: `require` encrypts and trusts whoever answers. */
function ssl(mode = 'disable', rootCertificate: string | undefined): false | object {
  const ca = rootCertificate === undefined ? {} : { ca: readFileSync(rootCertificate, 'utf8') };
  switch (mode) {
    case 'disable':
      return false;
    case 'require':
      return { rejectUnauthorized: false };
    case 'verify-ca':
      return { ...ca, checkServerIdentity: () => undefined };
    case 'verify-full':
      return ca;
    default:
      throw new ConfigError("postgres: sslmode is 'disable', 'require', 'verify-ca' or 'verify-full'.");
  }
}

function flag(text = 'true'): boolean {
  if (text !== 'true' && text !== 'false') throw new ConfigError("postgres: migrate is 'true' or 'false'.");
  return text === 'true';
}
