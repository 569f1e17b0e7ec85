/**
 * What is written where anybody may write: values of keys and nodes, reasons, numbers. It may be anything; it must never cost more
 * than itself. Names are encoded-name.ts.
 */

/** Nothing of ours is longer: a register's value may have 64 KiB, and each byte of it becomes six characters at most. */
const LONGEST_JSON = 1_048_576;
const LARGEST_NUMBER = 2n ** 63n - 1n;
/** Of a reason that a user is to read. */
const LONGEST_REASON = 1_024;

/** Undefined: no JSON, or too long for any of ours. A character can become an object of fifty bytes. */
export function foreignJson(text: string): unknown {
  if (text.length > LONGEST_JSON) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The fields of an object there; none where it is something else. */
export function foreignFields(text: string): Readonly<Record<string, unknown>> {
  const value = foreignJson(text);
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

/** A number that was written as text, because it may pass 2^53. None is larger than 64 bits with a sign hold. */
export function foreignBigint(value: unknown): bigint | undefined {
  if (typeof value !== 'string' || !/^\d{1,19}$/.test(value)) return undefined;
  const number = BigInt(value);
  return number <= LARGEST_NUMBER ? number : undefined;
}

/** Why a claim is to go, as much of it as anybody should have to read. */
export function foreignReason(text: string): string {
  return text.slice(0, LONGEST_REASON).toWellFormed();
}
