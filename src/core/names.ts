import { show } from './duration.js';
import { ConfigError } from './errors.js';

const LONGEST_NAME_BYTES = 512;

/** A name is 1–512 bytes of well-formed Unicode without control characters, compared byte by byte and not normalised. */
export function checkName(value: unknown, what = 'A lock name'): string {
  const name = checkText(value, what, LONGEST_NAME_BYTES, 1);
  if (/\p{Cc}/u.test(name)) throw new ConfigError(`${what} must not contain control characters; got ${show(name)}.`);
  return name;
}

/**
 * Text that goes into a store. Lone surrogates are refused because every one of them becomes U+FFFD in UTF-8: two names would be
 * one lock.
 */
export function checkText(value: unknown, what: string, mostBytes: number, leastBytes = 0): string {
  if (typeof value !== 'string') throw new ConfigError(`${what} must be a string; got ${show(value)}.`);
  // Three bytes is the most that one UTF-16 unit takes: short texts need no counting.
  const bytes = value.length * 3 > mostBytes ? Buffer.byteLength(value) : value.length;
  if (bytes < leastBytes || bytes > mostBytes)
    throw new ConfigError(`${what} must have ${leastBytes} to ${mostBytes} bytes in UTF-8; got ${bytes}.`);
  if (!value.isWellFormed())
    throw new ConfigError(`${what} must be well-formed Unicode; ${show(value)} has a lone surrogate.`);
  return value;
}
