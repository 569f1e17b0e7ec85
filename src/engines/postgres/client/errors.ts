/** What PostgreSQL's errors mean to us, by their SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html */
import { EngineError, HoldfastError, sentence } from '../../../core/errors.js';
import { orStranger } from '../../../kit/stranger.js';

/**
 * Whether the server has answered the statement with an error, and the connection is as good as before. A connection's own
 * end is FATAL. One to a server that takes no writes is of no use to us: its successor may be behind the same address.
 */
export function isRefusal(error: unknown): boolean {
  return (error as { severity?: unknown }).severity === 'ERROR' && !isReadOnly(error);
}

/** Nothing was done. */
export function isReadOnly(error: unknown): boolean {
  return codeOf(error) === '25006';
}

/** No such table, schema or function: the server may be another than the one that we made them on. */
export function isMissing(error: unknown): boolean {
  return MISSING.has(codeOf(error));
}

/** Deadlock, serialization: the transaction was undone and can be done again. */
export function isConflict(error: unknown): boolean {
  return CONFLICTS.has(codeOf(error));
}

/** A prepared statement is not there, or is there already. Nothing was done. */
export function isForgotten(error: unknown): boolean {
  return FORGOTTEN.has(codeOf(error));
}

const MISSING = new Set(['42P01', '3F000', '42883']);
const FORGOTTEN = new Set(['26000', '42P05']);
const CONFLICTS = new Set(['40001', '40P01']);

/** An error of ours. What can't be cured by asking again says what to do. */
export function explain(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = codeOf(error);
  const advice = ADVICE[code] ?? ADVICE[code.slice(0, 2)];
  const message = error instanceof Error ? error.message || code : 'unknown error';
  if (isReadOnly(error)) return readOnly(error);
  if (!advice) {
    const hint = /timeout|terminated/i.test(message) && code === '' ? `. ${orStranger('PostgreSQL')}` : '';
    return new EngineError(`PostgreSQL: ${message}${hint}`, { cause: error });
  }
  return new EngineError(`PostgreSQL refuses: ${sentence(message)} ${advice}`, { cause: error, retryable: false });
}

const READ_ONLY = 'PostgreSQL takes no writes: this server is a standby, or its default_transaction_read_only is on.';

/** It may be over in a moment: a primary that was demoted has a successor, and a standby may be promoted. */
export function readOnly(cause: unknown = Object.assign(new Error('it is read-only'), { code: '25006' })): EngineError {
  return new EngineError(READ_ONLY, { cause });
}

/** By code, or by the class that its first two digits are. Whatever is not here may be over in a moment. */
const ADVICE: Readonly<Record<string, string>> = {
  '28': 'Look at the user and the password.',
  '3D': 'Make the database, or name another.',
  '3F000': 'The tables are missing. Run: holdfast schema apply',
  '42P01': 'The tables are missing. Run: holdfast schema apply',
  '42883': 'The functions are missing. Run: holdfast schema apply',
  '42': 'The tables or functions are not those of this version. Run: holdfast schema apply',
  '42501':
    'Run "holdfast schema apply" as a role that may create there, and give the others the rights that "holdfast schema print" ends with.',
  ...Object.fromEntries(
    [
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'SELF_SIGNED_CERT_IN_CHAIN',
      'UNABLE_TO_GET_ISSUER_CERT',
      'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
      'ERR_TLS_CERT_ALTNAME_INVALID',
    ].map((code) => [code, 'The certificate of the server is not trusted: look at sslrootcert, sslmode and the host.']),
  ),
  '22021': 'Names and labels are Unicode: the database needs the encoding UTF8.',
  '22P05': 'Names and labels are Unicode: the database needs the encoding UTF8.',
};

/** An error of ours has it in its cause. */
export function codeOf(error: unknown): string {
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  if (error instanceof HoldfastError) return cause === undefined ? '' : codeOf(cause);
  return typeof code === 'string' ? code : '';
}
