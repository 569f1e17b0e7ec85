/** One memcached. */
import { ask, LOOPBACK, type Where } from './ports.js';
import { provide, type ProvideOptions } from './provide.js';
import { type Server, type ServerOptions, startServer } from './server.js';

export interface MemcachedOptions extends ProvideOptions, Pick<ServerOptions, 'env'> {
  /** More arguments; the last of a kind wins. Default: none. */
  readonly args?: readonly string[];
}

export async function startMemcached(options: MemcachedOptions = {}): Promise<Server> {
  const program = await provide('memcached', ['memcached'], options);
  // It refuses to run as root unless told whom to run as. Root itself is allowed, and changing the user would make the
  // kernel forget that it has to end with us.
  const user = process.getuid?.() === 0 ? ['-u', 'root'] : [];
  const { args = [] } = options;
  return startServer({
    ...options,
    name: 'memcached',
    program,
    args: ({ port }) => ['-l', LOOPBACK, '-p', `${port}`, '-U', '0', '-m', '64', '-t', '2', ...user, ...args],
    // One that wants a password first says so.
    ready: async ({ port }) => /^(VERSION|CLIENT_ERROR unauth)/.test(await ask(port, 'version\r\n')),
  });
}

/** The keys that have not run out, in no order. */
export async function memcachedKeys(where: Where): Promise<string[]> {
  const dump = await ask(where, 'lru_crawler metadump all\r\n');
  if (!dump.endsWith('END\r\n')) throw new Error(`not the whole list: ${dump}`);
  const rows = [...dump.matchAll(/^key=(\S+) exp=(-?\d+)/gm)];
  const nowS = Date.now() / 1_000;
  return rows.filter(([, , end]) => Number(end) < 0 || Number(end) > nowS).map(([, key]) => decodeURIComponent(key!));
}
