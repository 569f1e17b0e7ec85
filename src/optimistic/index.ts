/**
 * Optimistic rows: no lock at all. Read a row with its version, decide, and write only if the version is still the same;
 * if not, somebody was quicker: read again and decide again.
 *
 *     SELECT *, version FROM item WHERE id = 7            → { stock: 3 }, version 41
 *     (row) => ({ stock: row.stock - 1 })                 your function, on what was read
 *     UPDATE item SET version = version + 1, stock = 2 WHERE id = 7 AND version = 41
 *         1 row: done · 0 rows: wait a moment and begin again, at most so many times
 *
 * Good where conflicts are rare and your function has no other effects, because it may be called several times. Everybody
 * who changes such a row must move its version on; `UPDATE item SET stock = stock - 1` beside it loses nothing itself,
 * but makes us overwrite it.
 *
 * Not inside of a transaction of MySQL's default, REPEATABLE READ: it would read the same again and again. Outside of one, what the
 * database itself refuses because of others (40001, 40P01, 1213) is a conflict too.
 */
import { isDate } from 'node:util/types';
import { backoff } from '../core/backoff.js';
import { systemClock } from '../core/clock.js';
import { show } from '../core/duration.js';
import { ConfigError } from '../core/errors.js';
import { sleep } from '../core/real-time.js';
import { ConflictError } from '../sql/errors.js';
import { identifier } from '../sql/identifier.js';
import { portOf, type Row, type SqlPort } from '../sql/port.js';
import { type Dialect, type Statement, statement } from '../sql/statement.js';
import { type ColumnPlace, type VersionColumn, versionColumn } from './version-column.js';

export interface OptimisticOptions {
  /** Its name, `item`, or with a schema `shop.item`. */
  readonly table: string;
  /** The column that a row is found by: its primary key, or another that is unique. Default: `id`. */
  readonly id?: string | undefined;
  /** The column that tells whether it has changed: an integer, or a time with microseconds. Default: `version`. */
  readonly version?: string | undefined;
}

export interface UpdateOptions {
  /** How often it is tried again after a conflict, with a little more patience each time. Default: 10. */
  readonly retries?: number | undefined;
  /** Gives up between tries, with the signal's own reason. */
  readonly signal?: AbortSignal | undefined;
}

const FIRST_MS = 5;
const MOST_MS = 250;
const VERSION = 'holdfast_version';
const FOUND = 'holdfast_found';

/**
 * Rows of one table. `db` is a pool or a connection of `pg` or mysql2, a database of node:sqlite or better-sqlite3, or
 * `{ dialect, query, execute }` for any other library.
 *
 *     const items = optimistic(pool, { table: 'item', version: 'version' });
 *     await items.update(7, (row) => {
 *       if (row.stock === 0) throw new Error('sold out');
 *       return { stock: row.stock - 1 };
 *     });
 */
export function optimistic<R extends object = Record<string, unknown>>(
  db: object,
  options: OptimisticOptions,
): OptimisticRows<R> {
  return new OptimisticRows(portOf(db), options);
}

export class OptimisticRows<R extends object> {
  readonly #port: SqlPort;
  readonly #place: ColumnPlace;
  readonly #id: string;
  readonly #idColumn: string;
  readonly #fixed: ReadonlySet<string>;
  #column: Promise<VersionColumn> | undefined;

  constructor(port: SqlPort, { table, id = 'id', version = 'version' }: OptimisticOptions) {
    const { dialect } = port;
    this.#port = port;
    const words = typeof table === 'string' ? table.split('.') : [table];
    if (words.length > 2) throw new ConfigError(`table is a name, or a schema and a name; got ${show(table)}.`);
    const quotedTable = words.map((word) => identifier(dialect, word, 'table')).join('.');
    this.#id = identifier(dialect, id, 'id');
    this.#place = {
      schema: words.length === 2 ? words[0] : undefined,
      table: words.at(-1)!,
      column: version,
      quotedTable,
      quotedColumn: identifier(dialect, version, 'version'),
    };
    this.#idColumn = folded(dialect, id);
    this.#fixed = new Set([this.#idColumn, folded(dialect, version)]);
  }

  /**
   * Changes one row by what `change` makes of it: the columns to set, or undefined to leave it. Resolves to the row as it
   * was read, with the changes; to undefined if there is none. Throws a ConflictError if others were quicker each time, and
   * whatever `change` throws.
   */
  async update(
    id: unknown,
    change: (row: R) => Partial<R> | undefined | Promise<Partial<R> | undefined>,
    { retries = 10, signal }: UpdateOptions = {},
  ): Promise<R | undefined> {
    checkUpdate(id, change, retries);
    // Asked before: after a deadlock of MySQL, nobody knows any more that there was one.
    const isAlone = this.#port.isPool || (await this.#port.isInTransaction()) === false;
    for (let attempt = 0; attempt <= retries; attempt += 1) {
      if (attempt > 0) await pause(attempt - 1, signal);
      signal?.throwIfAborted();
      const read = await unlessConflict(isAlone, () => this.#read(id));
      if (read === CONFLICT) continue;
      if (!read) return undefined;
      const changes = await change({ ...read.row } as R);
      if (changes === undefined) return read.row as R;
      checkChanges(changes);
      const written = await unlessConflict(isAlone, () => this.#write(id, read.version, changes));
      if (written === true) return { ...read.row, ...changes } as R;
    }
    throw new ConflictError(`${this.#place.table} ${show(id)}`, retries + 1);
  }

  async #read(id: unknown): Promise<{ readonly row: Row; readonly version: string } | undefined> {
    const { read, last } = await this.#versionColumn();
    const { quotedTable, column, table } = this.#place;
    const [found, another] = await this.#port.rows(
      this.#statement(
        // By another name: SQLite does not know `schema.table.*`.
        `SELECT ${FOUND}.*, ${read} AS ${VERSION} FROM ${quotedTable} AS ${FOUND} WHERE ${this.#id} = ? LIMIT 2`,
        [id],
      ),
    );
    if (!found) return undefined;
    if (another)
      throw new ConfigError(
        `More than one row of ${table} has the id ${show(id)}: what finds a row must be unique. Keys of several columns are not supported.`,
      );
    // The last column, by place: libraries rename columns.
    const columns = Object.entries(found);
    if (columns.some(([name, value]) => this.#isId(name) && isTakenFor(id, value))) return undefined;
    const [, version] = columns.pop()!;
    if (version === null)
      throw new ConfigError(`${column} of ${table} ${show(id)} is NULL: give it a value, and NOT NULL.`);
    if (last !== undefined && !/^-?\d+$/.test(version as string))
      throw new ConfigError(`${column} of ${table} ${show(id)} is ${show(version)}: a version is a whole number.`);
    if (version === last)
      throw new ConfigError(
        `${column} of ${table} ${show(id)} is ${last}, the last of its type: it needs a larger one.`,
      );
    return { row: Object.fromEntries(columns), version: version as string };
  }

  async #write(id: unknown, version: string, changes: object): Promise<boolean> {
    const { isStill, next } = await this.#versionColumn();
    const { quotedTable, quotedColumn } = this.#place;
    const entries = Object.entries(changes);
    const sets = entries.map(([name, value]) => this.#set(name, value));
    const names = new Set(entries.map(([name]) => folded(this.#port.dialect, name)));
    if (names.size < entries.length)
      throw new ConfigError(`update must not change a column twice: ${entries.map(([name]) => name).join(', ')}.`);
    // Another row of that id that came after the read is not written, and found by the next read.
    const isOne = `(SELECT COUNT(*) FROM (SELECT 1 FROM ${quotedTable} WHERE ${this.#id} = ? LIMIT 2) AS found) = 1`;
    const set = [`${quotedColumn} = ${next}`, ...sets].join(', ');
    const update = `UPDATE ${quotedTable} SET ${set} WHERE ${this.#id} = ? AND ${isStill} AND ${isOne}`;
    const values = [...entries.map(([, value]) => value as unknown), id, version, id];
    if (this.#port.dialect === 'mysql') return (await this.#port.change(this.#statement(update, values))) > 0;
    return (await this.#port.rows(this.#statement(`${update} RETURNING 1 AS written`, values))).length > 0;
  }

  #set(name: string, value: unknown): string {
    if (this.#fixed.has(folded(this.#port.dialect, name)))
      throw new ConfigError(`update must not change ${name}: it is what the row is known by.`);
    if (value === undefined) throw new ConfigError(`${name} must not be undefined; null is NULL.`);
    return `${identifier(this.#port.dialect, name, 'A column')} = ?`;
  }

  #isId(column: string): boolean {
    return folded(this.#port.dialect, column) === this.#idColumn;
  }

  /** Looked up once; again after a failure. */
  #versionColumn(): Promise<VersionColumn> {
    this.#column ??= versionColumn(this.#port, this.#place).catch((error: unknown) => {
      this.#column = undefined;
      throw error;
    });
    return this.#column;
  }

  #statement(text: string, params: readonly unknown[]): Statement {
    return statement(this.#port.dialect, text, params);
  }
}

const CONFLICT = Symbol('conflict');

/** PostgreSQL: serialization failure, deadlock. MySQL: deadlock. */
const SERIALIZATION: ReadonlySet<unknown> = new Set(['40001', '40P01', 'ER_LOCK_DEADLOCK']);

/**
 * What a database refuses because of others is a conflict like any other, and can be tried again; unless a transaction of the
 * user's ends with it.
 *
 * @param isAlone there is no such transaction
 */
async function unlessConflict<T>(isAlone: boolean, work: () => Promise<T>): Promise<T | typeof CONFLICT> {
  try {
    return await work();
  } catch (error) {
    if (isAlone && isSerialization(error)) return CONFLICT;
    throw error;
  }
}

function isSerialization(error: unknown): boolean {
  return SERIALIZATION.has((error as { code?: unknown } | undefined)?.code);
}

/** As the database compares names of columns. Ours are quoted, so PostgreSQL takes them as they are. */
function folded(dialect: Dialect, name: string): string {
  return dialect === 'postgres' ? name : name.toLowerCase();
}

function checkChanges(changes: unknown): void {
  if (typeof changes !== 'object' || changes === null || Array.isArray(changes))
    throw new ConfigError(`update's function gives the columns to set, or undefined; got ${show(changes)}.`);
}

/** What a database compares with other types in its own way would find other rows. */
function isKey(id: unknown): boolean {
  return (
    typeof id === 'string' || typeof id === 'bigint' || Number.isFinite(id) || isDate(id) || id instanceof Uint8Array
  );
}

/** MySQL finds the row '7up' by the number 7, and the row 7 by '7up'. */
function isTakenFor(id: unknown, found: unknown): boolean {
  const isOneText = (typeof id === 'string') !== (typeof found === 'string');
  const areComparable = [id, found].every((each) => ['string', 'number', 'bigint'].includes(typeof each));
  return isOneText && areComparable && Number(id) !== Number(found);
}

function checkUpdate(id: unknown, change: unknown, retries: unknown): void {
  if (!isKey(id))
    throw new ConfigError(`update needs the id of a row: a text, a number, a Date or bytes; got ${show(id)}.`);
  if (typeof change !== 'function') throw new ConfigError(`update needs a function from a row to its changes.`);
  if (!Number.isSafeInteger(retries) || (retries as number) < 0)
    throw new ConfigError(`retries is a whole number from 0 on; got ${show(retries)}.`);
}

/** Jittered, so that those who met once do not meet again. */
async function pause(attempt: number, signal: AbortSignal | undefined): Promise<void> {
  const ms = backoff(systemClock, attempt, FIRST_MS, MOST_MS);
  await sleep(ms, signal);
}
