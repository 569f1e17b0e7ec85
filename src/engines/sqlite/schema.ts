/**
 * The file and its tables. A file is ours if SQLite's `application_id` says so; an empty one is made ours; anything
 * else is left alone. `user_version` counts migrations.
 */
import { ConfigError } from '../../core/errors.js';
import type { Database, Driver } from './client/driver.js';

const APPLICATION_ID = 0x486f6c64; // 'Hold'
const VERSION = 2;

const TABLES = `
  CREATE TABLE session (
    id          TEXT PRIMARY KEY,
    namespace   TEXT NOT NULL,
    boot_id     TEXT NOT NULL,     -- expires_ms is comparable only within one boot
    pid         INTEGER NOT NULL,
    pid_ns      TEXT,
    start_time  TEXT,
    ttl_ms      REAL NOT NULL,
    expires_ms  REAL NOT NULL,     -- system-wide monotonic time
    beats       INTEGER NOT NULL   -- what others watch when they can't compare times
  ) WITHOUT ROWID;

  CREATE TABLE watch (             -- what a boot has seen of a session whose times it can't compare with its own
    session     TEXT NOT NULL,
    boot_id     TEXT NOT NULL,     -- of those who watch
    beats       INTEGER NOT NULL,
    since_ms    REAL NOT NULL,     -- since when it has not beaten, by their monotonic time
    PRIMARY KEY (session, boot_id)
  ) WITHOUT ROWID;

  CREATE TABLE line (              -- what its claims add up to
    namespace   TEXT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    capacity    INTEGER NOT NULL,
    held        INTEGER NOT NULL,  -- sum of the weights that hold
    waiting     INTEGER NOT NULL,  -- how many wait
    PRIMARY KEY (namespace, kind, name)
  ) WITHOUT ROWID;

  CREATE TABLE claim (
    session     TEXT NOT NULL,
    id          TEXT NOT NULL,
    token       INTEGER NOT NULL,  -- order in line
    namespace   TEXT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    serial      INTEGER NOT NULL,
    weight      INTEGER NOT NULL,
    capacity    INTEGER NOT NULL,
    held        INTEGER NOT NULL,
    since       REAL NOT NULL,
    note        TEXT NOT NULL,
    evicted     TEXT,
    PRIMARY KEY (session, id)
  ) WITHOUT ROWID;
  CREATE INDEX claim_in_line ON claim (namespace, kind, name, held, token);

  CREATE TABLE register (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    value       BLOB,
    token       INTEGER NOT NULL,
    written     REAL NOT NULL,     -- wall clock: a register outlives the boot
    max_read    INTEGER NOT NULL,
    max_write   INTEGER NOT NULL,
    kept_until  REAL,              -- wall clock; null: for ever
    PRIMARY KEY (namespace, name)
  ) WITHOUT ROWID;
  CREATE INDEX register_kept ON register (kept_until) WHERE kept_until IS NOT NULL;

  CREATE TABLE mint (last_token INTEGER NOT NULL);
  INSERT INTO mint VALUES (0);
`;

/** Registers whose time is over, some of them. Bound: now, by the wall clock. */
export const FORGET = `DELETE FROM register WHERE (namespace, name) IN (
  SELECT namespace, name FROM register WHERE kept_until <= ? ORDER BY kept_until LIMIT 100)`;

/**
 * Opens the file, which keeps the journal mode of whoever opened it first. Throws whatever the driver throws: busy, too,
 * while another makes the tables. SQLite's own way of waiting would block the event loop.
 */
export function openFile(driver: Driver, path: string): Database {
  const database = driver.open(path);
  try {
    database.exec('PRAGMA busy_timeout = 0');
    prepareFile(database, driver);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function prepareFile(database: Database, driver: Driver): void {
  if (readPragma(database, 'application_id') !== APPLICATION_ID) claimFile(database, driver);
  const version = readPragma(database, 'user_version');
  if (version !== VERSION) {
    throw new ConfigError(
      `The lock file was made by another version of Holdfast (schema ${String(version)}, not ${VERSION}). Use the same version everywhere, or another file, or delete this one while nobody uses it: locks are made anew, registers are lost.`,
    );
  }
  if (readPragma(database, 'journal_mode') === 'wal' && !driver.wal) {
    throw new ConfigError(
      `The lock file uses a write-ahead log, which is not safe with this SQLite (${driver.name}). Run: npm install @photostructure/sqlite`,
    );
  }
  // Nothing that we do on the event loop's thread may sync or checkpoint; see registers.ts.
  database.exec('PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0');
}

function claimFile(database: Database, driver: Driver): void {
  const { tables } = database.prepare('SELECT count(*) AS tables FROM sqlite_master').get() as { tables: number };
  if (tables > 0 && readPragma(database, 'application_id') !== APPLICATION_ID) {
    throw new ConfigError(
      'The file for the locks is a SQLite database of something else. Holdfast needs a file of its own.',
    );
  }
  // A transition changes a row or two on each of a few pages, and whole pages are logged: small ones are four times cheaper.
  database.exec('PRAGMA page_size = 1024');
  if (driver.wal) database.exec('PRAGMA journal_mode = WAL');
  database.exec('BEGIN IMMEDIATE');
  try {
    // Another process may have been quicker.
    if (readPragma(database, 'application_id') !== APPLICATION_ID) {
      database.exec(`${TABLES} PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${VERSION}`);
    }
    database.exec('COMMIT');
  } catch (error) {
    rollBack(database);
    throw error;
  }
  settle(database);
}

/**
 * The tables get their space in the file now, once: when the disk is full later, only what has some can be moved there from the log.
 * Whoever is in the way of that has the file open and does as much with a later checkpoint.
 */
function settle(database: Database): void {
  try {
    database.exec('PRAGMA wal_checkpoint(PASSIVE)');
  } catch {
    // The log grows until the next one.
  }
}

/** After an error, which is what must be told: on a full disk SQLite has rolled back already, and says so with another one. */
export function rollBack(database: Database): void {
  try {
    database.exec('ROLLBACK');
  } catch {
    // No transaction is open any more.
  }
}

function readPragma(database: Database, name: string): unknown {
  return Object.values(database.prepare(`PRAGMA ${name}`).get() ?? {})[0];
}
