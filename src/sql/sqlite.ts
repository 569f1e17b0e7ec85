/** SQLite in this process: node:sqlite, @photostructure/sqlite, better-sqlite3. All of them are synchronous. */
import type { Row, SqlPort } from './port.js';
import type { Statement } from './statement.js';

export interface SqliteDatabase {
  prepare(sql: string): {
    all(...params: never[]): unknown[];
    run(...params: never[]): { changes: number | bigint };
  };
  exec(sql: string): unknown;
  /** node:sqlite. */
  readonly isTransaction?: boolean;
  /** better-sqlite3. */
  readonly inTransaction?: boolean;
}

export function isSqlite(db: object): db is SqliteDatabase {
  const { prepare, exec } = db as Record<string, unknown>;
  return typeof prepare === 'function' && typeof exec === 'function';
}

export class SqlitePort implements SqlPort {
  readonly dialect = 'sqlite';
  readonly isPool = false;
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  get inTransaction(): boolean | undefined {
    return this.#database.isTransaction ?? this.#database.inTransaction;
  }

  rowsNow({ sql, params }: Statement): readonly Row[] {
    return this.#database.prepare(sql).all(...(params as never[])) as Row[];
  }

  /** Without values and rows. */
  execNow(sql: string): void {
    this.#database.exec(sql);
  }

  async exec(sql: string): Promise<void> {
    this.execNow(sql);
  }

  commit(): Promise<void> {
    return this.exec('COMMIT');
  }

  async isInTransaction(): Promise<boolean | undefined> {
    return this.inTransaction;
  }

  async rows(statement: Statement): Promise<readonly Row[]> {
    return this.rowsNow(statement);
  }

  async change({ sql, params }: Statement): Promise<number> {
    return Number(this.#database.prepare(sql).run(...(params as never[])).changes);
  }
}
