/**
 * The column that tells whether a row has changed: a counter, or a time of change. How it is read, compared and moved on,
 * by dialect. It is compared as the database keeps it and never as a JavaScript value: a Date has milliseconds, and a
 * number 53 bits.
 *
 * A time is moved on by at least its own smallest step, so that two of our updates never have the same. Others may set it
 * from their clock: with microseconds two changes in one step are out of reach, with anything coarser they are not, and a
 * change would be overlooked. SQLite's clock has milliseconds at best.
 */
import { ConfigError } from '../core/errors.js';
import type { Row, SqlPort } from '../sql/port.js';
import { type Dialect, statement } from '../sql/statement.js';

export interface VersionColumn {
  /** Reads it as text. */
  readonly read: string;
  /** With `?` for that text. */
  readonly isStill: string;
  readonly next: string;
}

export interface ColumnPlace {
  readonly schema: string | undefined;
  readonly table: string;
  readonly column: string;
  /** As statements have them. */
  readonly quotedTable: string;
  readonly quotedColumn: string;
}

export async function versionColumn(port: SqlPort, place: ColumnPlace): Promise<VersionColumn> {
  const [row] = await port.rows(statement(port.dialect, ...lookUp(port.dialect, place)));
  if (!row)
    throw new ConfigError(
      `There is no column ${place.column} of ${place.table} in this database, or no right to see it.`,
    );
  const type = typeOf(row);
  const made = COLUMNS[port.dialect](type, place.quotedColumn);
  if (typeof made !== 'string') return made;
  throw new ConfigError(`${place.table}.${place.column} is of type ${type}: ${made}`);
}

/** The type, with its precision in parentheses. */
function lookUp(dialect: Dialect, { schema, table, column, quotedTable }: ColumnPlace): [string, readonly unknown[]] {
  if (dialect === 'postgres')
    return [
      `SELECT format_type(atttypid, atttypmod) AS type FROM pg_attribute
        WHERE attrelid = to_regclass(CAST(? AS text)) AND attname = CAST(? AS text) AND NOT attisdropped`,
      [quotedTable, column],
    ];
  if (dialect === 'mysql')
    return [
      `SELECT CONCAT(DATA_TYPE, IF(DATETIME_PRECISION IS NULL, '', CONCAT('(', DATETIME_PRECISION, ')'))) AS type
        FROM information_schema.columns
        WHERE table_schema = ${schema === undefined ? 'DATABASE()' : '?'} AND table_name = ? AND column_name = ?`,
      [...(schema === undefined ? [] : [schema]), table, column],
    ];
  return ['SELECT type FROM pragma_table_info(?) WHERE name = ?', [table, column]];
}

function typeOf(row: Row): string {
  return String(Object.values(row)[0]).toLowerCase();
}

const COARSE =
  'two changes may have the same time, and one would be overlooked. It needs microseconds, or use a column that counts.';
const UNKNOWN = 'a version is an integer that counts, or a time of change with microseconds.';

/** Or why not. */
const COLUMNS: Record<Dialect, (type: string, column: string) => VersionColumn | string> = {
  postgres: (type, v) => {
    if (/^(smallint|integer|bigint)$/.test(type)) return counter(v, 'text', 'bigint');
    const found = /^timestamp(?:\((\d)\))? (with|without) time zone$/.exec(type);
    if (!found) return type === 'date' ? COARSE : UNKNOWN;
    if (Number(found[1] ?? 6) < 6) return COARSE;
    const zoneless = found[2] === 'with' ? `${v} AT TIME ZONE 'UTC'` : v;
    const read = `to_char(${zoneless}, 'YYYY-MM-DD HH24:MI:SS.US')`;
    return {
      read,
      isStill: `${read} = CAST(? AS text)`,
      next: `greatest(CAST(clock_timestamp() AS ${type}), ${v} + interval '1 microsecond')`,
    };
  },
  mysql: (type, v) => {
    if (type.endsWith('int')) return counter(v, 'CHAR', 'SIGNED');
    const found = /^(datetime|timestamp)\((\d)\)$/.exec(type);
    if (!found) return type.startsWith('date') ? COARSE : UNKNOWN;
    if (Number(found[2]) < 6) return COARSE;
    // A TIMESTAMP as text depends on the session's time zone, and is ambiguous when the clocks are put back.
    const read = found[1] === 'timestamp' ? `CAST(UNIX_TIMESTAMP(${v}) AS CHAR)` : `CAST(${v} AS CHAR)`;
    return { read, isStill: `${read} = ?`, next: `GREATEST(NOW(6), ${v} + INTERVAL 1 MICROSECOND)` };
  },
  sqlite: (type, v) => (type.includes('int') ? counter(v, 'TEXT', 'INTEGER') : COARSE),
};

function counter(v: string, text: string, integer: string): VersionColumn {
  return { read: `CAST(${v} AS ${text})`, isStill: `${v} = CAST(? AS ${integer})`, next: `${v} + 1` };
}
