/** What a database's answer to an open fence means. */
import type { Fence } from '../core/engine.js';
import { ConfigError, EngineError, StaleTokenError } from '../core/errors.js';
import { newest } from '../core/fence.js';
import { MigrationLockError } from '../sql/errors.js';
import type { Row } from '../sql/port.js';
import type { FenceTable } from './table.js';

/** Outside of one, others come in between the check and the write; every statement would be a transaction of its own. */
export function checkTransaction(inTransaction: boolean | undefined): void {
  if (inTransaction === false)
    throw new ConfigError(
      'A fence must be opened inside of a transaction, and this connection is in none: between the check and your write ' +
        'others could come in. Begin one first, or let fence(db).transaction do so.',
    );
}

const MISSING: ReadonlySet<unknown> = new Set(['42P01', '3F000', 'ER_NO_SUCH_TABLE', 1146]);
const OUTDATED: ReadonlySet<unknown> = new Set(['ER_BAD_FIELD_ERROR', 1054]);
/** No right to the table, to its columns, to the database. */
const FORBIDDEN: ReadonlySet<unknown> = new Set(['42501', 1044, 1142, 1143]);

const DEADLOCK =
  'Two transactions wait for each other, or on a cluster with several primaries another was quicker. Roll back, and run the whole ' +
  'transaction again. Fences that are opened by one call, open([…]), are opened in the same order by all.';
const CHANGED =
  'The fence was opened by others since this transaction’s snapshot. Roll back, and run the whole transaction again: if the ' +
  'lease was overtaken, that will say so.';
const KEPT =
  'Another transaction has had this fence open for longer than this one may wait. Roll back, and run the whole transaction again.';

/** Refusals that are the user's to try again, so the client's own error stays what it is; with the reason. */
const REFUSALS: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  ...['40P01', 'ER_LOCK_DEADLOCK', 1213].map((code) => [code, DEADLOCK] as const),
  ['40001', CHANGED],
  ...['55P03', 'ER_LOCK_WAIT_TIMEOUT', 1205].map((code) => [code, KEPT] as const),
]);

/** Adapters wrap errors; the database's own is inside then. */
function* causesOf(error: unknown): Iterable<Error & { readonly code?: unknown; readonly errno?: unknown }> {
  for (let each = error, depth = 0; each instanceof Error && depth < 4; each = each.cause, depth += 1) yield each;
}

function codesOf(error: unknown): readonly unknown[] {
  return [...causesOf(error)].flatMap(({ code, errno }) => [code, errno]);
}

export function isMissingTable(error: unknown): boolean {
  if (codesOf(error).some((code) => MISSING.has(code))) return true;
  return [...causesOf(error)].some(({ message }) => /no such table: \w*fence\b|fence' doesn't exist/.test(message));
}

/** What to throw in its place: with what to do, where that is known. */
export function explained(error: unknown, table: FenceTable): unknown {
  const codes = codesOf(error);
  if (isMissingTable(error)) return table.missing(error);
  if (codes.some((code) => FORBIDDEN.has(code))) return table.forbidden(error);
  if (table.complete && codes.some((code) => OUTDATED.has(code))) return table.outdated(error);
  return withReason(error, codes);
}

/** The same error, because whoever tries transactions again knows it by its class and its code. */
export function withReason(error: unknown, codes = codesOf(error)): unknown {
  const reason = codes.map((code) => REFUSALS.get(code)).find(Boolean);
  if (reason !== undefined && error instanceof Error && !error.message.endsWith(reason))
    error.message = `${error.message}. ${reason}`;
  return error;
}

/** What to throw where the table could not be made. */
export function unmade(error: unknown, table: FenceTable): unknown {
  if (codesOf(error).includes('55P03'))
    return new MigrationLockError('of this database', 'pg_locks shows it, with locktype advisory');
  return explained(error, table);
}

/** MySQL: two have added the same column at once. */
export function isThereAlready(error: unknown): boolean {
  return codesOf(error).some((code) => code === 'ER_DUP_FIELDNAME' || code === 1060);
}

export function tokensOf(row: Row | undefined): { readonly read: bigint; readonly wrote: bigint } {
  // By place: libraries rename columns.
  const [read, wrote] = Object.values(row!).map(tokenIn);
  return { read: read!, wrote: wrote! };
}

/** SQLite keeps any text in a column of numbers. */
function tokenIn(column: unknown): bigint {
  const text = String(column);
  if (/^-?\d{1,19}$/.test(text)) return BigInt(text);
  throw new EngineError(
    'The table of fences has something else than a token in a row. Somebody else has written there.',
    {
      retryable: false,
    },
  );
}

export function stale(
  resource: string,
  { token }: Fence,
  { read, wrote }: { read: bigint; wrote: bigint },
): StaleTokenError {
  return new StaleTokenError(resource, token, newest(read, wrote));
}
