/**
 * SQLite as a lock server for all processes of one machine: the embedded default. The protocol is in protocol.ts, the
 * tables in schema.ts, what may wait for the disk in registers.ts.
 */
import { closeSync, openSync, readlinkSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Engine, EngineSetup, EngineSource } from '../../core/engine.js';
import { ConfigError } from '../../core/errors.js';
import { warnOnce } from '../../kit/warn-once.js';
import { type Driver, loadDriver } from './client/driver.js';
import { SqliteEngine } from './engine.js';
import { patiently } from './patience.js';
import { openFile } from './schema.js';
import { traits } from './traits.js';

/** Locks in a file: `new Holdfast(sqlite('./locks.db'))` or `new Holdfast('sqlite:./locks.db')`. */
export function sqlite(path: string): EngineSource {
  if (typeof path !== 'string' || path === '')
    throw new ConfigError("sqlite needs the path of a file: 'sqlite:./locks.db'.");
  const file = resolve(path);
  return { traits, place: `sqlite:${file}`, title: `sqlite at ${file}`, connect: (setup) => connect(file, setup) };
}

async function connect(path: string, setup: EngineSetup): Promise<Engine> {
  const driver = await loadDriver();
  warnOfOld(driver);
  keepPrivate(path);
  const database = await patiently(path, () => openFile(driver, path));
  return new SqliteEngine(path, database, setup);
}

/** As many links in a row as Linux follows. */
const MOST_LINKS = 40;

/**
 * A new file is its owner's alone, and so are the log and the index that SQLite puts beside it: session ids are secrets. Also
 * where a link leads to it. A file that is there already is not opened: closing it would end the locks that SQLite has on it.
 */
function keepPrivate(path: string, links = 0): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch {
    const target = linkedFrom(path);
    // Else it is there already, or SQLite will say what is wrong.
    if (target !== undefined && links < MOST_LINKS) keepPrivate(target, links + 1);
  }
}

function linkedFrom(path: string): string | undefined {
  try {
    return resolve(dirname(path), readlinkSync(path));
  } catch {
    return undefined;
  }
}

function warnOfOld({ wal, name }: Driver): void {
  if (wal) return;
  warnOnce(
    `The SQLite of ${name} is too old for a write-ahead log (3.51.3 is needed): locks use a rollback journal, which is slow. ` +
      'Use a newer Node, or run: npm install @photostructure/sqlite',
  );
}
