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
  /** Of one that counts: the largest that fits. One more would be an error, another type, or on MySQL the same again. */
  readonly last?: string;
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
      `SELECT CONCAT(DATA_TYPE, IF(COLUMN_TYPE LIKE '%unsigned%', ' unsigned', ''),
          IF(DATETIME_PRECISION IS NULL, '', CONCAT('(', DATETIME_PRECISION, ')'))) AS type
        FROM information_schema.columns
        WHERE table_schema = ${schema === undefined ? 'DATABASE()' : '?'} AND table_name = ? AND column_name = ?`,
      [...(schema === undefined ? [] : [schema]), table, column],
    ];
  const columns = schema === undefined ? 'pragma_table_info(?)' : 'pragma_table_info(?, ?)';
  // SQLite finds columns whatever their case.
  return [
    `SELECT type FROM ${columns} WHERE name = ? COLLATE NOCASE`,
    [table, ...(schema === undefined ? [] : [schema]), column],
  ];
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
    const bytes = { smallint: 2, integer: 4, bigint: 8 }[type];
    if (bytes !== undefined) return counter(v, 'text', 'bigint', bytes);
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
    const [, size, unsigned] = /^(tiny|small|medium|big|)int( unsigned)?$/.exec(type) ?? [];
    if (size !== undefined) {
      const bytes = { tiny: 1, small: 2, medium: 3, big: 8 }[size] ?? 4;
      return counter(v, 'CHAR', unsigned ? 'UNSIGNED' : 'SIGNED', bytes, unsigned !== undefined);
    }
    const found = /^(datetime|timestamp)\((\d)\)$/.exec(type);
    if (!found) return type.startsWith('date') ? COARSE : UNKNOWN;
    if (Number(found[2]) < 6) return COARSE;
    // A TIMESTAMP as text depends on the session's time zone, and is ambiguous when the clocks are put back.
    const read = found[1] === 'timestamp' ? `CAST(UNIX_TIMESTAMP(${v}) AS CHAR)` : `CAST(${v} AS CHAR)`;
    return { read, isStill: `${read} = ?`, next: `GREATEST(NOW(6), ${v} + INTERVAL 1 MICROSECOND)` };
  },
  sqlite: (type, v) => (type.includes('int') ? counter(v, 'TEXT', 'INTEGER', 8) : COARSE),
};

function counter(v: string, text: string, integer: string, bytes: number, unsigned = false): VersionColumn {
  const last = 2n ** BigInt(8 * bytes - (unsigned ? 0 : 1)) - 1n;
  return {
    read: `CAST(${v} AS ${text})`,
    isStill: `${v} = CAST(? AS ${integer})`,
    next: `${v} + 1`,
    last: `${last}`,
  };
}
