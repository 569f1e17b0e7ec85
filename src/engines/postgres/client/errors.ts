/** What PostgreSQL's errors mean to us, by their SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html */
import { EngineError, HoldfastError } from '../../../core/errors.js';

/** Whether the server has answered the statement with an error and goes on. A connection's own end is FATAL. */
export function isRefusal(error: unknown): boolean {
  return (error as { severity?: unknown }).severity === 'ERROR';
}

/** Deadlock, serialization: the transaction was undone and can be done again. */
export function isConflict(error: unknown): boolean {
  return CONFLICTS.has(codeOf(error));
}

/** A prepared statement is not there, or is there already. Nothing was done. */
export function isForgotten(error: unknown): boolean {
  return FORGOTTEN.has(codeOf(error));
}

const FORGOTTEN = new Set(['26000', '42P05']);
const CONFLICTS = new Set(['40001', '40P01']);

/** An error of ours. What can't be cured by asking again says what to do. */
export function explain(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = codeOf(error);
  const advice = ADVICE[code] ?? ADVICE[code.slice(0, 2)];
  const message = error instanceof Error ? error.message || code : 'unknown error';
  if (!advice) return new EngineError(`PostgreSQL: ${message}`, { cause: error });
  return new EngineError(`PostgreSQL refuses: ${message}. ${advice}`, { cause: error, retryable: false });
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
  '22021': 'Names and labels are Unicode: the database needs the encoding UTF8.',
  '22P05': 'Names and labels are Unicode: the database needs the encoding UTF8.',
};

/** An error of ours has it in its cause. */
export function codeOf(error: unknown): string {
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  if (error instanceof HoldfastError) return cause === undefined ? '' : codeOf(cause);
  return typeof code === 'string' ? code : '';
}
