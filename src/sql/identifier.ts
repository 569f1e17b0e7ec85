/** Names of tables and columns become a part of statements, so nothing that is more than a name gets through. */
import { show } from '../core/duration.js';
import { ConfigError } from '../core/errors.js';
import type { Dialect } from './statement.js';

/** PostgreSQL cuts names after 63 bytes, silently. */
const WORD = /^[A-Za-z_][A-Za-z0-9_$]{0,62}$/;

/** Quoted, so that reserved words and capitals work. */
export function identifier(dialect: Dialect, name: unknown, what: string): string {
  if (typeof name !== 'string' || !WORD.test(name))
    throw new ConfigError(
      `${what} is a letter or _, then letters, digits, _ and $, at most 63 in all; got ${show(name)}.`,
    );
  return dialect === 'mysql' ? `\`${name}\`` : `"${name}"`;
}
