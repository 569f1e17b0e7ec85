/**
 * Which SQLite to use. Both drivers have the same interface, that of `node:sqlite`.
 *
 * SQLite before 3.51.3 can lose committed data when one process checkpoints a write-ahead log while another writes: our
 * exact use. So an older `node:sqlite` gives way to the peer package, and without that works with a rollback journal.
 */
import { ConfigError } from '../../../core/errors.js';
import { exportsOf } from '../../../kit/peer.js';

export interface Statement {
  get(...values: unknown[]): Record<string, unknown> | undefined;
  all(...values: unknown[]): Record<string, unknown>[];
  run(...values: unknown[]): { changes: number | bigint };
  setReadBigInts(on: boolean): void;
}

export interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement;
  close(): void;
}

export interface Driver {
  readonly name: 'node:sqlite' | '@photostructure/sqlite';
  /** Whether a write-ahead log is safe with it. */
  readonly wal: boolean;
  open(path: string): Database;
}

interface Module {
  DatabaseSync: new (path: string) => Database;
}

const SAFE_WITH_WAL = [3, 51, 3] as const;

export async function loadDriver(): Promise<Driver> {
  // No import: a bundler that does not know this module would fail over it.
  const builtIn = process.getBuiltinModule('node:sqlite') as Module | undefined;
  if (builtIn && isSafeWithWal(builtIn)) return driver('node:sqlite', builtIn, true);
  const peer = await loadPeer();
  if (peer) return driver('@photostructure/sqlite', peer, isSafeWithWal(peer));
  if (builtIn) return driver('node:sqlite', builtIn, false);
  throw new ConfigError(
    'This version of Node has no SQLite of its own, and the package "@photostructure/sqlite" is not installed. ' +
      'Run: npm install @photostructure/sqlite',
  );
}

function driver(name: Driver['name'], { DatabaseSync }: Module, wal: boolean): Driver {
  return { name, wal, open: (path) => new DatabaseSync(path) };
}

async function loadPeer(): Promise<Module | undefined> {
  try {
    return exportsOf('@photostructure/sqlite', 'DatabaseSync', await import('@photostructure/sqlite'));
  } catch {
    return undefined;
  }
}

function isSafeWithWal({ DatabaseSync }: Module): boolean {
  const database = new DatabaseSync(':memory:');
  const { version } = database.prepare('SELECT sqlite_version() AS version').get() as { version: string };
  database.close();
  const parts = version.split('.').map(Number);
  for (const [at, least] of SAFE_WITH_WAL.entries()) {
    if (parts[at] !== least) return (parts[at] ?? 0) > least;
  }
  return true;
}
