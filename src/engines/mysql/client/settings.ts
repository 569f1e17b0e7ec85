/**
 * What the session of a connection can be set to, by the server, by `init_connect` or by a pool's owner, that our statements
 * can't stand: the lock would be a row that is never committed, or a search that is cut short. Such a session is set as we
 * need it: for good where the connection is ours, else for as long as we have it.
 *
 * Where the time zone, the character set or anything else that is not in this list is odd, our statements mean the same.
 */
import { EngineError } from '../../../core/errors.js';
import { type RawConnection, type Row, send, text } from './port.js';

/** Variables of a session by name. */
export type Settings = Readonly<Record<string, string | number>>;

interface Setting {
  /** The servers have several names for some: those that one does not know it does not show. */
  readonly names: readonly string[];
  readonly ours: string;
  readonly isFine: (value: string) => boolean;
}

const NO_LIMIT = '18446744073709551615';

/** Modes that were seen to do no harm. MariaDB's EMPTY_STRING_IS_NULL and ORACLE do, and who knows what will be added. */
const FINE_MODES = new Set(
  (
    'ALLOW_INVALID_DATES,ANSI,ANSI_QUOTES,ERROR_FOR_DIVISION_BY_ZERO,IGNORE_BAD_TABLE_OPTIONS,IGNORE_SPACE,' +
    'NO_AUTO_CREATE_USER,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES,NO_DIR_IN_CREATE,NO_ENGINE_SUBSTITUTION,' +
    'NO_UNSIGNED_SUBTRACTION,NO_ZERO_DATE,NO_ZERO_IN_DATE,ONLY_FULL_GROUP_BY,PIPES_AS_CONCAT,REAL_AS_FLOAT,' +
    'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,TIME_ROUND_FRACTIONAL,TIME_TRUNCATE_FRACTIONAL,TRADITIONAL'
  ).split(','),
);

export const SETTINGS: readonly Setting[] = [
  { names: ['sql_select_limit'], ours: NO_LIMIT, isFine: (value) => value === NO_LIMIT },
  { names: ['autocommit'], ours: '1', isFine: (value) => value === '1' },
  { names: ['completion_type'], ours: 'NO_CHAIN', isFine: (value) => value === 'NO_CHAIN' },
  {
    names: ['sql_mode'],
    ours: 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION',
    isFine: (value) => value.split(',').every((mode) => mode === '' || FINE_MODES.has(mode)),
  },
  {
    names: ['transaction_isolation', 'tx_isolation'],
    // What the servers begin with. READ COMMITTED some of them refuse, for their log.
    ours: 'REPEATABLE-READ',
    isFine: (value) => value === 'REPEATABLE-READ' || value === 'READ-COMMITTED',
  },
  { names: ['transaction_read_only', 'tx_read_only'], ours: '0', isFine: (value) => value === '0' },
  { names: ['sql_safe_updates'], ours: '0', isFine: (value) => value === '0' },
  // Without them InnoDB locks an empty table as a whole to fill it.
  { names: ['unique_checks'], ours: '1', isFine: (value) => value === '1' },
];

/** What is asked of every session: also what some strategies set. */
const SHOWN = [...SETTINGS.flatMap(({ names }) => names), 'wait_timeout', 'innodb_lock_wait_timeout'];

/** How a session is set. */
export async function settingsOf(connection: RawConnection): Promise<Settings> {
  const shown = await show(connection);
  if (shown['sql_select_limit'] === NO_LIMIT) return shown;
  // It cuts what is shown, too. A SELECT would not do to ask for it: none of its rows may be left.
  await send(connection, `SET @holdfast_limit = @@SESSION.sql_select_limit, @@SESSION.sql_select_limit = ${NO_LIMIT}`);
  const [row] = (await send(connection, 'SELECT CAST(@holdfast_limit AS CHAR) AS most')) as readonly Row[];
  return { ...(await show(connection)), sql_select_limit: text(row?.[0]) };
}

async function show(connection: RawConnection): Promise<Settings> {
  const names = SHOWN.map((name) => `'${name}'`).join(', ');
  const rows = (await send(connection, `SHOW SESSION VARIABLES WHERE Variable_name IN (${names})`)) as readonly Row[];
  return Object.fromEntries(rows.map(([name, value]) => [text(name).toLowerCase(), plain(text(value))]));
}

/** What has to be set, as it has to be. */
export function oddSettings(settings: Settings): Settings {
  const odd: Record<string, string> = {};
  for (const { names, ours, isFine } of SETTINGS)
    for (const name of names) if (name in settings && !isFine(`${settings[name]}`)) odd[name] = ours;
  return odd;
}

export async function set(connection: RawConnection, settings: Settings): Promise<void> {
  const parts = Object.entries(settings).map(([name, value]) => `@@SESSION.${name} = ${literal(value)}`);
  if (parts.length > 0) await send(connection, `SET ${parts.join(', ')}`);
}

function plain(value: string): string {
  return { ON: '1', OFF: '0' }[value] ?? value;
}

/** Some of them are the server's own words, given back to it. */
function literal(value: string | number): string {
  if (/^\d+$/.test(`${value}`)) return `${value}`;
  if (/^[\w,-]*$/.test(`${value}`)) return `'${value}'`;
  throw new EngineError('A setting of the session has a value that we can’t put back.', { retryable: false });
}
