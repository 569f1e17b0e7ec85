/**
 * What is needed of a database that the user has in hand: a statement's rows, or how many rows it changed. Clients are
 * known by their shape: `pg`, mysql2 with and without promises, and synchronous SQLite libraries. Whatever else there is
 * comes as an adapter of the user's.
 *
 * Errors of the client pass as they are: it is the user's transaction, and only the user can try it again.
 */
import { show } from '../core/duration.js';
import { ConfigError } from '../core/errors.js';
import { isMysql2, Mysql2Port } from './mysql2.js';
import { isPg, PgPort } from './pg.js';
import { isSqlite, SqlitePort } from './sqlite.js';
import { type Dialect, type Statement, statement } from './statement.js';

/**
 * A transaction of any other library, in three lines.
 *
 *     const adapter = { dialect: 'postgres', query: async (sql, params) => (await trx.execute(sql, params)).rows };
 */
export interface SqlAdapter {
  readonly dialect: Dialect;
  /**
   * Runs it in the transaction and gives its rows. `sql` has the placeholders of the dialect (`$1` for PostgreSQL, `?` for
   * the others), `parts` is the same text cut at them, for libraries that take a tagged template: `sql(parts, ...params)`.
   */
  query(sql: string, params: readonly unknown[], parts: TemplateStringsArray): PromiseLike<unknown>;
  /** How many rows it found. Only optimistic rows on MySQL need it. */
  execute?(sql: string, params: readonly unknown[], parts: TemplateStringsArray): PromiseLike<number>;
}

export type Row = Readonly<Record<string, unknown>>;

export interface SqlPort {
  readonly dialect: Dialect;
  /** Whether each statement may run on another connection. */
  readonly isPool: boolean;
  /** Whether the next statement would run in a transaction. Undefined: this client does not tell. */
  isInTransaction(): Promise<boolean | undefined>;
  rows(statement: Statement): Promise<readonly Row[]>;
  /** Without values and rows. */
  exec(sql: string): Promise<unknown>;
  /** How many rows it changed. */
  change(statement: Statement): Promise<number>;
  /** Ends the transaction, and throws if that did not commit it. Adapters have none: their library does that. */
  commit?(): Promise<unknown>;
  /** Pools: a connection that nobody else has meanwhile. */
  borrow?(): Promise<Borrowed>;
  /** A further connection to the same database, as the same user, where the client tells how to make one. */
  beside?(): Promise<Borrowed>;
}

export interface Borrowed {
  readonly db: object;
  /** @param isBroken nobody knows what state it is in: it is closed. */
  giveBack(isBroken: boolean): Promise<void>;
}

export function portOf(db: unknown): SqlPort {
  if (typeof db === 'object' && db !== null) {
    if (isAdapter(db)) return new AdapterPort(db);
    if (isPg(db)) return new PgPort(db);
    if (isMysql2(db)) return new Mysql2Port(db);
    if (isSqlite(db)) return new SqlitePort(db);
  }
  throw new ConfigError(
    'This is no database that Holdfast knows. It takes a connection of pg or mysql2, a database of node:sqlite or ' +
      `better-sqlite3, or { dialect, query } for any other library (docs/fencing.md); got ${show(db)}.`,
  );
}

const DIALECTS: ReadonlySet<unknown> = new Set<Dialect>(['postgres', 'mysql', 'sqlite']);

function isAdapter(db: object): db is SqlAdapter {
  const { dialect, query } = db as Partial<SqlAdapter>;
  if (dialect === undefined || typeof query !== 'function') return false;
  // Query builders have a `dialect` of their own, an object.
  if (typeof dialect === 'string' && !DIALECTS.has(dialect))
    throw new ConfigError(`dialect is 'postgres', 'mysql' or 'sqlite'; got ${show(dialect)}.`);
  return DIALECTS.has(dialect);
}

class AdapterPort implements SqlPort {
  readonly dialect: Dialect;
  readonly isPool = false;
  readonly #adapter: SqlAdapter;

  constructor(adapter: SqlAdapter) {
    this.dialect = adapter.dialect;
    this.#adapter = adapter;
  }

  async rows({ sql, params, parts }: Statement): Promise<readonly Row[]> {
    const rows = await this.#adapter.query(sql, params, parts);
    // What a statement without rows gives is the library's own affair.
    return Array.isArray(rows) ? (rows as Row[]) : [];
  }

  async isInTransaction(): Promise<undefined> {
    return undefined;
  }

  exec(sql: string): Promise<unknown> {
    return this.rows(statement(this.dialect, sql, []));
  }

  async change({ sql, params, parts }: Statement): Promise<number> {
    if (!this.#adapter.execute)
      throw new ConfigError(
        'On MySQL an adapter for optimistic rows needs execute(sql, params) too: the number of rows that it changed.',
      );
    return this.#adapter.execute(sql, params, parts);
  }
}
