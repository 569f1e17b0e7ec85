/** What MySQL, MariaDB and mysql2 say, as errors of ours. */
import { EngineError, HoldfastError, quote } from '../../../core/errors.js';

interface ServerError {
  readonly errno?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
  readonly sqlState?: unknown;
  /** What the system was asked, where it said no. */
  readonly syscall?: unknown;
}

/** Rolled back by the server: a deadlock, or a lock that was waited for too long. To do it again is all there is to do. */
const TRANSIENT = new Set([1213, 1205, 3058]);

export function isTransient(error: unknown): boolean {
  return TRANSIENT.has(Number((error as ServerError | null)?.errno));
}

/** Read-only for us, for this transaction, as a whole; and a node of Galera that has left its cluster. */
const READ_ONLY_ERRORS = new Set([1290, 1792, 1836, 1047]);

/** The server takes no writes: it may have been the primary once. */
export function isReadOnly(error: unknown): boolean {
  return READ_ONLY_ERRORS.has(errnoOf(error));
}

/** Of a connection that ends, or a statement that somebody has interrupted. */
const CUT_SHORT = /^(08|70)/;

/** The server can't do this, whoever asks and however often. */
export function isBeyond(error: unknown): boolean {
  const { sqlState } = (error ?? {}) as ServerError;
  if (typeof sqlState !== 'string' || CUT_SHORT.test(sqlState) || isTransient(error)) return false;
  return TROUBLE[errnoOf(error)]?.retryable !== true;
}

/** Numbers in a row that nobody of ours has written do not add up to one. */
export function isOutOfRange(error: unknown): boolean {
  return (
    error instanceof EngineError && /DATA_OUT_OF_RANGE/.test(String((error.cause as ServerError | undefined)?.code))
  );
}

export function errnoOf(error: unknown): number {
  return Number((error as ServerError | null)?.errno);
}

const SCHEMA_HINT =
  'Run `holdfast schema apply` as somebody who may, or let `holdfast schema print` show the statements.';

const NOT_ALLOWED = `The database user may not do this. It needs SELECT, INSERT, UPDATE and DELETE, and CREATE for the first use (with CREATE ROUTINE and EXECUTE the strategy 'queue' is faster). ${SCHEMA_HINT}`;
const NO_TABLES = `The tables or routines of Holdfast are missing in this database. ${SCHEMA_HINT}`;
export const READ_ONLY = 'The database is read-only: is this a replica? Locks need the primary.';
const NOT_PREPARED = 'This node has left its cluster or has not joined it yet (WSREP): it takes no locks.';
const FULL = 'The server has no connection left for us (max_connections).';

const TROUBLE: Readonly<Record<number, { readonly says: string; readonly retryable: boolean }>> = {
  1040: { says: FULL, retryable: true },
  1203: { says: FULL, retryable: true },
  1226: { says: FULL, retryable: true },
  1044: { says: 'The database user may not use this database.', retryable: false },
  1045: { says: 'The database refused user or password.', retryable: false },
  1698: { says: 'The database refused user or password.', retryable: false },
  1130: { says: 'The database does not let this host in.', retryable: false },
  1129: { says: 'The database has blocked this host after many errors (FLUSH HOSTS).', retryable: true },
  1049: { says: 'There is no such database. Create it, or correct the name in the URL.', retryable: false },
  1046: { says: "No database is chosen. Name one in the URL, 'mysql://host/app', or in the pool.", retryable: false },
  1142: { says: NOT_ALLOWED, retryable: false },
  1143: { says: NOT_ALLOWED, retryable: false },
  1227: { says: NOT_ALLOWED, retryable: false },
  1370: { says: NOT_ALLOWED, retryable: false },
  1146: { says: NO_TABLES, retryable: false },
  1305: { says: NO_TABLES, retryable: false },
  1290: { says: READ_ONLY, retryable: true },
  1792: { says: READ_ONLY, retryable: true },
  1836: { says: READ_ONLY, retryable: true },
  1047: { says: NOT_PREPARED, retryable: true },
  1064: {
    says: 'The database does not understand a statement of ours: it is too old, or of another kind.',
    retryable: false,
  },
  1406: {
    says: 'A value is too long for a column of Holdfast: its tables are of an earlier version. Run `holdfast schema apply`.',
    retryable: false,
  },
  1665: {
    says: 'The server logs statements (binlog_format = STATEMENT), which InnoDB refuses for READ COMMITTED. Use ROW or MIXED.',
    retryable: false,
  },
};

/** Of a certificate the code says only that something is wrong with it; of a call of the system its text says the address. */
function reasonOf({ code, message, syscall }: ServerError): string {
  if (syscall !== undefined && typeof message === 'string' && message) return message;
  if (code !== 'HANDSHAKE_SSL_ERROR') return String(code ?? message);
  return `the server's certificate is not trusted: ${quote(String(message))}`;
}

/** Only code and number go on from what the server says: its text may quote values, and a session's id is a secret. */
export function explained(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const problem = (error ?? {}) as ServerError;
  const { errno, code, sqlState } = problem;
  const known = TROUBLE[Number(errno)];
  if (sqlState === undefined && !known)
    return new EngineError(`The database could not be reached: ${reasonOf(problem)}.`, {
      cause: error,
      retryable: code !== 'HANDSHAKE_NO_SSL_SUPPORT',
    });
  const cause = Object.assign(new Error(`${String(code)} (${String(errno)})`), { code: String(code) });
  if (known) return new EngineError(known.says, { cause, retryable: known.retryable });
  return new EngineError(`The database failed: ${String(code)} (${String(errno)}).`, { cause });
}
