/**
 * What a URL of MySQL or MariaDB says, without any client.
 *
 *     mysql://user:password@host:3306/database?strategy=queue&tablePrefix=holdfast_&migrate=true&tls=true&ca=/etc/mysql/ca.pem
 */
import { ConfigError } from '../../core/errors.js';
import { type CertificateFiles, certificateFiles, FILE_PARAMS } from '../../kit/certificates.js';
import { decode, type EngineUrl } from '../../kit/url.js';
import { checkPrefix, DEFAULT_PREFIX } from '../../sql/mysql-prefix.js';
import { type MysqlStrategy, STRATEGIES } from './traits.js';

export const URL_PARAMS: readonly string[] = [
  ...['tablePrefix', 'migrate', 'connections', 'severalPrimaries', 'tls'],
  ...FILE_PARAMS,
];

/** What `for-update` and `get-lock` do where the server is one of several primaries. */
export type SeveralPrimaries = 'refuse' | 'warn';

export interface MysqlSettings {
  readonly strategy: MysqlStrategy;
  readonly tablePrefix: string;
  readonly migrate: boolean;
  readonly connections: number;
  readonly severalPrimaries: SeveralPrimaries;
}

export interface MysqlUrl extends MysqlSettings {
  readonly host: string;
  readonly port: number;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string;
  readonly tls: boolean;
  readonly files: CertificateFiles;
}

const DEFAULT_CONNECTIONS = 64;
const MOST_CONNECTIONS = 10_000;

export function mysqlUrl(url: EngineUrl): MysqlUrl {
  const { scheme, hosts, user, password, path, params } = url;
  const host = hosts[0];
  if ((scheme !== 'mysql' && scheme !== 'mariadb') || !host || hosts.length > 1)
    throw new ConfigError("A URL of MySQL or MariaDB looks like 'mysql://user:password@host:3306/database'.");
  const connections = params.get('connections');
  const tls = flag(url, 'tls', false);
  const files = certificateFiles(url);
  if (!tls && Object.keys(files).length > 0)
    throw new ConfigError('mysql: certificates are for TLS: add tls=true, or leave them out.');
  return {
    ...checkSettings({
      strategy: params.get('strategy'),
      tablePrefix: params.get('tablePrefix'),
      migrate: flag(url, 'migrate', true),
      connections: connections === undefined ? undefined : Number(connections),
      severalPrimaries: params.get('severalPrimaries'),
    }),
    host: host.host,
    port: host.port ?? 3_306,
    user,
    password,
    database: databaseOf(path),
    tls,
    files,
  };
}

/** What was passed to `mysql()` or stands in the URL, with the defaults. */
export function checkSettings(given: {
  readonly strategy?: unknown;
  readonly tablePrefix?: unknown;
  readonly migrate?: unknown;
  readonly connections?: unknown;
  readonly severalPrimaries?: unknown;
}): MysqlSettings {
  const { strategy = 'queue', tablePrefix = DEFAULT_PREFIX, migrate = true, connections = DEFAULT_CONNECTIONS } = given;
  const { severalPrimaries = 'refuse' } = given;
  if (typeof strategy !== 'string' || !Object.hasOwn(STRATEGIES, strategy))
    throw new ConfigError(`The strategies of mysql are ${Object.keys(STRATEGIES).join(', ')}.`);
  if (typeof migrate !== 'boolean') throw new ConfigError('migrate is true or false.');
  if (
    typeof connections !== 'number' ||
    !Number.isInteger(connections) ||
    connections < 1 ||
    connections > MOST_CONNECTIONS
  )
    throw new ConfigError(`connections is a whole number from 1 to ${MOST_CONNECTIONS}.`);
  if (severalPrimaries !== 'refuse' && severalPrimaries !== 'warn')
    throw new ConfigError("severalPrimaries is 'refuse' or 'warn'.");
  return {
    strategy: strategy as MysqlStrategy,
    tablePrefix: checkPrefix(tablePrefix),
    migrate,
    connections,
    severalPrimaries,
  };
}

function databaseOf(path: string): string {
  const [, database = '', ...more] = path.split('/');
  if (database === '' || more.length > 0)
    throw new ConfigError("The path of a URL of MySQL is the name of a database: 'mysql://localhost/app'.");
  return decode(database);
}

function flag({ scheme, params }: EngineUrl, name: string, otherwise: boolean): boolean {
  const text = params.get(name);
  if (text === undefined) return otherwise;
  if (text !== 'true' && text !== 'false') throw new ConfigError(`${scheme}: ${name} is 'true' or 'false'.`);
  return text === 'true';
}
