/** URL → engine. The only file that names engines: adding one means adding a row. */
import { show } from './core/duration.js';
import type { EngineSource } from './core/engine.js';
import { ConfigError } from './core/errors.js';
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
import { type EngineUrl, parseEngineUrl, placeOf } from './kit/url.js';

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
    place: placeOf(url),
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
  if (!scheme) throw new ConfigError(`There is no engine for ${show(`${url.scheme}:`)}. Known: ${list(SCHEMES, ':')}.`);
  if (!scheme.hosts && url.hosts.length > 0)
    throw new ConfigError(`${url.scheme}: has no servers. Write '${url.scheme}:name', without '//'.`);
  const strategy = chooseStrategy(url, scheme);
  checkParams(url, scheme);
  strategy.check?.(url);
  return { url, strategy };
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
