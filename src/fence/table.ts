/** The table of fences and its statements, in three dialects. */
import { ConfigError, EngineError } from '../core/errors.js';
import type { Fence } from '../core/engine.js';
import { Names, type SchemaOptions } from '../sql/postgres-names.js';
import { checkPrefix, DEFAULT_PREFIX } from '../sql/mysql-prefix.js';
import { mysqlFenceOpened, mysqlFenceTable, postgresFenceTable } from '../sql/fence-table.js';
import { type Dialect, type Statement, statement } from '../sql/statement.js';

export interface TableOptions extends SchemaOptions {
  /** What the table's name begins with. Default: `holdfast_`, as that of the engine's tables. */
  readonly tablePrefix?: string | undefined;
  /** PostgreSQL only: the schema that the table is in. Default: `holdfast`. */
  readonly schema?: string | undefined;
}

export class FenceTable {
  readonly name: string;
  /**
   * Makes it where it is missing; many may do so at once.
   * @param patienceMs PostgreSQL: how long to wait for another that migrates
   */
  readonly make: (patienceMs: number) => string;
  /** MySQL: adds what a table of an earlier version lacks. */
  readonly complete: string | undefined;
  /** One row if it is there, with all of its columns. SQLite says by itself what is missing. */
  readonly look: Statement | undefined;
  /** What makes it, for people. */
  readonly #ddl: string;
  /** The rights that its users need, for people. */
  readonly #grants: string;
  readonly #dialect: Dialect;

  constructor(dialect: Dialect, options: TableOptions) {
    this.#dialect = dialect;
    if (options.schema !== undefined && dialect !== 'postgres')
      throw new ConfigError('Only PostgreSQL has a schema for the table of fences; elsewhere there is tablePrefix.');
    if (dialect === 'postgres') {
      const names = new Names(options);
      this.name = names.of('fence');
      this.#ddl = `CREATE SCHEMA IF NOT EXISTS "${names.schema}";\n${postgresFenceTable(names)}`;
      this.#grants = `GRANT USAGE ON SCHEMA "${names.schema}" TO …;\nGRANT SELECT, INSERT, UPDATE ON ${this.name} TO …`;
      this.make = (patienceMs) => makeInPostgres(names, patienceMs);
      const text = 'SELECT 1 AS found WHERE to_regclass(CAST(? AS text)) IS NOT NULL';
      this.look = statement(dialect, text, [this.name]);
    } else {
      const prefix = checkPrefix(options.tablePrefix ?? DEFAULT_PREFIX);
      this.name = `${prefix}fence`;
      this.#ddl = dialect === 'mysql' ? mysqlFenceTable(prefix) : sqliteTable(this.name);
      this.make = () => this.#ddl;
      this.#grants = `GRANT SELECT, INSERT, UPDATE ON ${this.name} TO …`;
      if (dialect === 'mysql') {
        this.complete = mysqlFenceOpened(prefix);
        const text = `SELECT 1 AS found FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = ? AND column_name = 'opened'`;
        this.look = statement(dialect, text, [this.name]);
      }
    }
  }

  /** The conditional upsert. PostgreSQL and SQLite answer a row if the token was not stale, MySQL nothing. */
  present(resource: string, fence: Fence): Statement {
    return this.#dialect === 'mysql' ? this.#presentInMysql(resource, fence) : this.#presentAndTell(resource, fence);
  }

  /** Both tokens, as text. The row was written by this transaction just now, so MySQL shows it as it is, whatever the snapshot. */
  tokens(resource: string): Statement {
    const [text, name, shown] =
      this.#dialect === 'mysql' ? ['CHAR', 'UNHEX(?)', hex(resource)] : ['text', 'CAST(? AS text)', resource];
    return this.#statement(
      `SELECT CAST(max_read AS ${text}) AS r, CAST(max_write AS ${text}) AS w FROM ${this.name} WHERE name = ${name}`,
      [shown],
    );
  }

  #presentAndTell(resource: string, { mode, token }: Fence): Statement {
    const [bigint, greatest] = this.#dialect === 'postgres' ? ['bigint', 'greatest'] : ['INTEGER', 'max'];
    const shown = `CAST(? AS ${bigint})`;
    const [values, change, fresh] =
      mode === 'read'
        ? [`${shown}, 0`, `max_read = ${greatest}(f.max_read, excluded.max_read)`, 'f.max_write < excluded.max_read']
        : [
            `0, ${shown}`,
            'max_write = excluded.max_write',
            'f.max_write <= excluded.max_write AND f.max_read < excluded.max_write',
          ];
    return this.#statement(
      `INSERT INTO ${this.name} AS f (name, max_read, max_write) VALUES (CAST(? AS text), ${values})
        ON CONFLICT (name) DO UPDATE SET ${change} WHERE ${fresh}
        RETURNING 1 AS opened`,
      [resource, `${token}`],
    );
  }

  #presentInMysql(resource: string, { mode, token }: Fence): Statement {
    const shown = 'CAST(? AS SIGNED)';
    const text = `${token}`;
    const insert = `INSERT INTO ${this.name} (opened, name, max_read, max_write) VALUES (1, UNHEX(?),`;
    const counted = 'opened = opened + 1';
    return mode === 'read'
      ? this.#statement(
          `${insert} ${shown}, 0) ON DUPLICATE KEY UPDATE ${counted},
            max_read = IF(max_write < ${shown}, GREATEST(max_read, ${shown}), max_read)`,
          [hex(resource), text, text, text],
        )
      : this.#statement(
          `${insert} 0, ${shown}) ON DUPLICATE KEY UPDATE ${counted},
            max_write = IF(max_write <= ${shown} AND max_read < ${shown}, ${shown}, max_write)`,
          [hex(resource), text, text, text, text],
        );
  }

  #statement(text: string, params: readonly string[]): Statement {
    return statement(this.#dialect, text, params);
  }

  /** What to do where it is missing and can't be made on the way. */
  missing(cause: unknown): EngineError {
    return new EngineError(
      `The table of fences is missing in this database. Run \`holdfast schema apply\`, call migrate(db) of 'holdfast/fence' ` +
        'once, or run:',
      { retryable: false, cause, statement: `${this.#ddl};` },
    );
  }

  /** What to do where it is one of an earlier version. */
  outdated(cause: unknown): EngineError {
    return new EngineError(
      `The table of fences is of an earlier version of Holdfast. Run \`holdfast schema apply\`, call migrate(db) of 'holdfast/fence' ` +
        'once, or run:',
      { retryable: false, cause, statement: `${this.complete};` },
    );
  }

  /** What to do where the user has too few rights, to make it or to use it. */
  forbidden(cause: unknown): EngineError {
    return new EngineError(
      `The database user may not use the table of fences ${this.name}, or may not make it. Somebody who may has to run:`,
      { retryable: false, cause, statement: `${this.#ddl};\n${this.#grants};` },
    );
  }
}

/**
 * One statement, so that it can be sent to a pool. Under the lock that migrations take: two who make the same at once would
 * not both succeed, in spite of IF NOT EXISTS. Which for a schema also needs the right to make one when it is there.
 */
function makeInPostgres(names: Names, patienceMs: number): string {
  return `DO $holdfast$ DECLARE patience text := current_setting('lock_timeout'); BEGIN
  PERFORM set_config('lock_timeout', '${patienceMs}', true);
  PERFORM pg_advisory_xact_lock(hashtextextended('holdfast migration', 0));
  IF to_regnamespace('"${names.schema}"') IS NULL THEN CREATE SCHEMA "${names.schema}"; END IF;
  ${postgresFenceTable(names)};
  PERFORM set_config('lock_timeout', patience, true);
END $holdfast$`;
}

function sqliteTable(name: string): string {
  return `CREATE TABLE IF NOT EXISTS ${name} (
  name       TEXT PRIMARY KEY COLLATE BINARY,
  max_read   INTEGER NOT NULL,         -- the highest token that a reader has shown
  max_write  INTEGER NOT NULL          -- and a writer
) WITHOUT ROWID`;
}

/** Bytes, and no question of the connection's character set. */
function hex(text: string): string {
  return Buffer.from(text).toString('hex');
}
