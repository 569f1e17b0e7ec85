import { show } from './duration.js';
import { ConfigError } from './errors.js';

const LONGEST_BYTES = 512;

/**
 * A name is 1–512 bytes of well-formed Unicode without control characters, compared byte by byte and not normalised.
 * Lone surrogates are refused because every one of them becomes U+FFFD in UTF-8: two names would be one lock.
 */
export function checkName(name: unknown, what = 'A lock name'): string {
  if (typeof name !== 'string') throw new ConfigError(`${what} must be a string; got ${show(name)}.`);
  // Three bytes is the most that one UTF-16 unit takes: short names need no counting.
  if (name.length === 0 || (name.length * 3 > LONGEST_BYTES && Buffer.byteLength(name) > LONGEST_BYTES)) {
    throw new ConfigError(`${what} must have 1 to ${LONGEST_BYTES} bytes in UTF-8; got ${Buffer.byteLength(name)}.`);
  }
  if (!name.isWellFormed())
    throw new ConfigError(`${what} must be well-formed Unicode; ${show(name)} has a lone surrogate.`);
  if (/\p{Cc}/u.test(name)) throw new ConfigError(`${what} must not contain control characters; got ${show(name)}.`);
  return name;
}

const LONGEST_REASON_BYTES = 1_024;

/** Why a claim is taken away: a text for people, which goes to its holder as it is. */
export function checkReason(reason: unknown): string {
  if (typeof reason !== 'string') throw new ConfigError(`A reason must be a string; got ${show(reason)}.`);
  if (reason.length > LONGEST_REASON_BYTES || Buffer.byteLength(reason) > LONGEST_REASON_BYTES)
    throw new ConfigError(
      `A reason must have at most ${LONGEST_REASON_BYTES} bytes in UTF-8; got ${Buffer.byteLength(reason)}.`,
    );
  if (!reason.isWellFormed())
    throw new ConfigError(`A reason must be well-formed Unicode; ${show(reason)} has a lone surrogate.`);
  return reason;
}
