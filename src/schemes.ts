/** URL → engine. The only file that names engines: adding one means adding a row. */
import { show } from './core/duration.js';
import type { EngineSource } from './core/engine.js';
import { ConfigError } from './core/errors.js';
import { nearest } from './core/options.js';
import { schemes as etcd } from './engines/etcd/scheme.js';
import { schemes as memcached } from './engines/memcached/scheme.js';
import { schemes as memory } from './engines/memory/scheme.js';
import { schemes as mysql } from './engines/mysql/scheme.js';
import { schemes as postgres } from './engines/postgres/scheme.js';
import { schemes as redis } from './engines/redis/scheme.js';
import { schemes as sqlite } from './engines/sqlite/scheme.js';
import { schemes as zookeeper } from './engines/zookeeper/scheme.js';
import type { Schema } from './kit/schema.js';
import type { Scheme, Schemes, Strategy } from './kit/scheme.js';
import { type EngineUrl, located, parseEngineUrl } from './kit/url.js';

const SCHEMES: Schemes = {
  ...memory,
  ...sqlite,
  ...redis,
  ...postgres,
  ...mysql,
  ...memcached,
  ...etcd,
  ...zookeeper,
};

/** The engine that a URL stands for, not loaded yet. */
export function engineFromUrl(text: string): EngineSource {
  const { url, strategy } = find(text);
  return {
    traits: strategy.traits,
    ...located(url),
    ...(strategy.realm && { realm: strategy.realm(url) }),
    connect: async (setup) => (await strategy.load(url)).connect(setup),
  };
}

/** The tables that the URL's engine needs; undefined where it needs none. */
export async function schemaFromUrl(text: string): Promise<Schema | undefined> {
  const { url, strategy } = find(text);
  return strategy.schema?.(url);
}

function find(text: string): { readonly url: EngineUrl; readonly strategy: Strategy } {
  const url = parseEngineUrl(text);
  const scheme = Object.hasOwn(SCHEMES, url.scheme) ? SCHEMES[url.scheme] : undefined;
  if (!scheme)
    throw new ConfigError(
      `There is no engine for ${show(`${url.scheme}:`)}.${meant(url)} Known: ${list(SCHEMES, ':')}.`,
    );
  if (!scheme.hosts && url.hosts.length > 0)
    throw new ConfigError(`${url.scheme}: has no servers. Write '${url.scheme}:name', without '//'.`);
  const strategy = chooseStrategy(url, scheme);
  checkParams(url, scheme);
  strategy.check?.(url);
  return { url, strategy };
}

const USUAL_PORTS: Readonly<Record<string, string>> = {
  '3306': 'mysql',
  '5432': 'postgres',
  '2379': 'etcd',
  '2181': 'zookeeper',
  '11211': 'memcached',
};

/** A host and a port without a scheme, or a scheme that is not written like that. */
function meant({ scheme, path, hosts }: EngineUrl): string {
  const port = hosts.length === 0 ? /^(\d{1,5})(?:\/\w*)?$/.exec(path)?.[1] : undefined;
  if (port !== undefined) return ` Did you mean '${USUAL_PORTS[port] ?? 'redis'}://${scheme}:${port}'?`;
  const near = nearest(scheme, Object.keys(SCHEMES));
  return near === undefined ? '' : ` Did you mean '${near}:'?`;
}

/** Somebody's own client where an engine is wanted: what to write instead. Undefined: it is none that we know. */
export function fixFor(given: unknown): string | undefined {
  const known = CLIENTS.find(({ has }) => has.every((name) => hasMember(given, name)));
  return known && `a ${known.what}. Write: ${known.fix}`;
}

function hasMember(given: unknown, name: string): boolean {
  return typeof given === 'object' && given !== null && name in given;
}

/** By their shapes, the more special before the others. */
const CLIENTS: readonly { readonly what: string; readonly has: readonly string[]; readonly fix: string }[] = [
  { what: 'client of ioredis', has: ['evalsha', 'duplicate'], fix: fixWith('redis', 'client') },
  { what: 'client of node-redis', has: ['evalSha', 'duplicate'], fix: fixWith('redis', 'client') },
  { what: 'pool of pg', has: ['totalCount', 'Client'], fix: fixWith('postgres', 'pool') },
  {
    what: 'single client of pg, and locks need a pool',
    has: ['processID', 'query', 'connection'],
    fix: `new Holdfast(postgres(new pg.Pool({ … }))), with import { postgres } from 'holdfast/postgres'.`,
  },
  { what: 'pool of mysql2', has: ['getConnection', 'execute'], fix: fixWith('mysql', 'pool') },
];

function fixWith(engine: string, client: string): string {
  return `new Holdfast(${engine}(${client})), with import { ${engine} } from 'holdfast/${engine}'.`;
}

function chooseStrategy(url: EngineUrl, { strategies }: Scheme): Strategy {
  const name = url.params.get('strategy') ?? Object.keys(strategies)[0]!;
  const strategy = Object.hasOwn(strategies, name) ? strategies[name] : undefined;
  if (!strategy) throw new ConfigError(`${url.scheme}: has no strategy ${show(name)}. Known: ${list(strategies)}.`);
  return strategy;
}

function checkParams(url: EngineUrl, scheme: Scheme): void {
  const allowed = ['strategy', ...scheme.params];
  const unknown = [...url.params.keys()].find((param) => !allowed.includes(param));
  if (unknown === undefined) return;
  throw new ConfigError(`${url.scheme}: does not know the parameter ${show(unknown)}. Known: ${allowed.join(', ')}.`);
}

function list(known: Readonly<Record<string, unknown>>, suffix = ''): string {
  return Object.keys(known)
    .map((name) => name + suffix)
    .join(', ');
}
