/** Which locks the `holdfast run` processes around us hold. */
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import { usage } from './failure.js';
import type { WantedLock } from './options.js';
import { processes } from './processes.js';
import { maskCredentials, quote } from './text.js';

/**
 * A JSON array, the outermost first. What a command started may outlive its run, and inherits this all the same: so each entry also
 * says which process holds.
 */
const HELD = 'HOLDFAST_HELD';

interface HeldRun {
  readonly key: string;
  readonly pid: number;
  readonly started: string;
}

export interface Nesting {
  /** For the child's environment. */
  readonly env: Readonly<Record<string, string>>;
  /** What only the environments of our command, and of all that it starts, have in them. */
  readonly mark: string;
}

/**
 * `holdfast run X` inside of `holdfast run X` would wait for its own end. Shared ones too: behind a writer that came in
 * between, the inner reader waits for the writer and the writer for the outer reader.
 */
export function enterNesting(name: string, want: WantedLock, url: string, env: NodeJS.ProcessEnv): Nesting {
  const key = `${want.kind === 'semaphore' ? 'semaphore' : 'lock'}:${place(url)}:${name}`;
  const { entries } = processes();
  const startOf = (pid: number): string | undefined => entries.find((entry) => entry.pid === pid)?.started;
  const held = readHeld(env[HELD]).filter(({ pid, started }) => startOf(pid) === started);
  if (held.some((outer) => outer.key === key)) {
    throw usage(`${quote(name)} is held by the holdfast run that this one runs inside of: it would wait for itself`);
  }
  const own: HeldRun = { key, pid: process.pid, started: startOf(process.pid) ?? '' };
  return { env: { [HELD]: JSON.stringify([...held, own]) }, mark: JSON.stringify(own) };
}

function readHeld(text: string | undefined): HeldRun[] {
  try {
    const held: unknown = JSON.parse(text ?? '[]');
    return Array.isArray(held) ? held.filter(isHeld) : [];
  } catch {
    return [];
  }
}

function isHeld(entry: unknown): entry is HeldRun {
  const { key, pid, started } = (entry ?? {}) as Partial<HeldRun>;
  return typeof key === 'string' && typeof pid === 'number' && typeof started === 'string';
}

/** What a URL means that does not say it. */
const PORTS: Readonly<Record<string, string>> = {
  redis: '6379',
  'redis+sentinel': '26379',
  'redis+cluster': '6379',
  redlock: '6379',
  postgres: '5432',
  mysql: '3306',
  etcd: '2379',
  zookeeper: '2181',
  memcached: '11211',
};

/** Of several names of one scheme the one that stands for all of them. */
const SAME: readonly (readonly [RegExp, string])[] = [
  [/^rediss/, 'redis'],
  [/^postgresql$/, 'postgres'],
  [/^mariadb$/, 'mysql'],
  [/^(etcd|zookeeper)s$/, '$1'],
];

/** The same for one engine, however its user, password, path or defaults were written; and nothing can be read from it. */
function place(url: string): string {
  const [, path] = /^sqlite:(.*)$/is.exec(url) ?? [];
  const bare = path === undefined ? spelledOut(maskCredentials(url, '')) : `sqlite:${resolve(path)}`;
  return createHash('sha256').update(bare).digest('hex').slice(0, 16);
}

/** Parameters that say nothing of where the locks are. */
const ELSEWHERE = ['epochGuard', 'sentinelPassword'];

function spelledOut(url: string): string {
  const [, name, authority, path = '', query = ''] = /^([^:]+):\/\/([^/?]*)(\/[^?]*)?(?:\?(.*))?$/s.exec(url) ?? [];
  if (name === undefined || authority === undefined) return url;
  const scheme = SAME.reduce((text, [from, to]) => text.replace(from, to), name.toLowerCase());
  const hosts = authority
    .toLowerCase()
    .split(',')
    .map((host) => (/:\d+$/.test(host) ? host : `${host}:${PORTS[scheme] ?? ''}`));
  // Not behind another slash: else the time for a path of slashes would grow with its square.
  const database = path.replace(/(?<!\/)\/+$/, '').replace(/^(\/0)?$/, '');
  const params = new URLSearchParams(query);
  for (const param of ELSEWHERE) params.delete(param);
  params.sort();
  return `${scheme}://${hosts.sort().join(',')}${database}?${params.toString()}`;
}
