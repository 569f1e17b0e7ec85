/** One memcached. */
import { connect } from 'node:net';
import { addressOf, ask, LOOPBACK, type Where } from './ports.js';
import { provide } from './provide.js';
import { type Server, type ServerOptions, startServer } from './server.js';
import { eventually } from './wait.js';

/** Whichever is not about a key: END, BUSY, or an error. */
const LAST_LINE = /(^|\n)(?!key=)[^\n]*\r\n$/;
/** A machine that takes longer for the next piece has lost it. */
const DUMP_WITHIN_MS = 5_000;

export interface MemcachedOptions extends Pick<ServerOptions, 'env'> {
  /** More arguments; the last of a kind wins. Default: none. */
  readonly args?: readonly string[];
}

export async function startMemcached(options: MemcachedOptions = {}): Promise<Server> {
  const program = provide('memcached', ['memcached']);
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
  const dump = await eventually('the keys are listed', () => dumpOf(where));
  const rows = [...dump.matchAll(/^key=(\S+) exp=(-?\d+)/gm)];
  const nowS = Date.now() / 1_000;
  return rows.filter(([, , end]) => Number(end) < 0 || Number(end) > nowS).map(([, key]) => decodeURIComponent(key!));
}

/** It comes in as many pieces as it likes. Instead of it a memcached says BUSY while it cleans up by itself. */
async function dumpOf(where: Where): Promise<string> {
  const { host, port } = addressOf(where);
  const socket = connect(port, host, () => socket.write('lru_crawler metadump all\r\n'));
  socket.setTimeout(DUMP_WITHIN_MS, () => socket.destroy());
  let dump = '';
  for await (const piece of socket) {
    dump += String(piece);
    if (LAST_LINE.test(dump)) break;
  }
  if (!dump.endsWith('END\r\n')) throw new Error(`not the whole list: ${dump}`);
  return dump;
}
