/**
 * What a URL of MySQL or MariaDB says, without any client.
 *
 *     mysql://user:password@host:3306/database?strategy=queue&tablePrefix=holdfast_&migrate=true&tls=true
 */
import { ConfigError } from '../../core/errors.js';
import { decode, type EngineUrl } from '../../kit/url.js';
import { checkPrefix, DEFAULT_PREFIX } from '../../sql/mysql-prefix.js';
import { type MysqlStrategy, STRATEGIES } from './traits.js';

export const URL_PARAMS: readonly string[] = ['tablePrefix', 'migrate', 'connections', 'tls'];

export interface MysqlSettings {
  readonly strategy: MysqlStrategy;
  readonly tablePrefix: string;
  readonly migrate: boolean;
  readonly connections: number;
}

export interface MysqlUrl extends MysqlSettings {
  readonly host: string;
  readonly port: number;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly database: string;
  readonly tls: boolean;
}

const DEFAULT_CONNECTIONS = 64;
const MOST_CONNECTIONS = 10_000;

export function mysqlUrl(url: EngineUrl): MysqlUrl {
  const { scheme, hosts, user, password, path, params } = url;
  const host = hosts[0];
  if ((scheme !== 'mysql' && scheme !== 'mariadb') || !host || hosts.length > 1)
    throw new ConfigError("A URL of MySQL or MariaDB looks like 'mysql://user:password@host:3306/database'.");
  const connections = params.get('connections');
  return {
    ...checkSettings({
      strategy: params.get('strategy'),
      tablePrefix: params.get('tablePrefix'),
      migrate: flag(url, 'migrate', true),
      connections: connections === undefined ? undefined : Number(connections),
    }),
    host: host.host,
    port: host.port ?? 3_306,
    user,
    password,
    database: databaseOf(path),
    tls: flag(url, 'tls', false),
  };
}

/** What was passed to `mysql()` or stands in the URL, with the defaults. */
export function checkSettings(given: {
  readonly strategy?: unknown;
  readonly tablePrefix?: unknown;
  readonly migrate?: unknown;
  readonly connections?: unknown;
}): MysqlSettings {
  const { strategy = 'queue', tablePrefix = DEFAULT_PREFIX, migrate = true, connections = DEFAULT_CONNECTIONS } = given;
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
  return { strategy: strategy as MysqlStrategy, tablePrefix: checkPrefix(tablePrefix), migrate, connections };
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
