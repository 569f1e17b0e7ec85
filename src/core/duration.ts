import { ConfigError, quote } from './errors.js';

type Unit = 'ms' | 's' | 'm' | 'h' | 'd';

/**
 * Milliseconds, or a number with its unit: `'250ms'`, `'10s'`, `'1.5h'`, `'7d'`; a year at the most. Digits as those of a bigint, because
 * TypeScript takes `'2 '` for a number too.
 */
export type Duration = number | `${bigint}${'' | `.${bigint}` | `.0${bigint}`}${Unit}`;

const UNIT_MS: Readonly<Record<Unit, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

const LONGEST_MS = 366 * UNIT_MS.d;

export function parseDuration(value: unknown, what: string): number {
  const ms = typeof value === 'string' ? fromText(value) : value;
  if (typeof ms !== 'number' || !Number.isFinite(ms) || ms < 0 || ms > LONGEST_MS) {
    throw new ConfigError(
      `${what} must be a duration from 0 to 366d, in milliseconds or like '250ms', '10s', '5m', '1h', '7d'; got ${show(value)}.`,
    );
  }
  return ms;
}

export function optionalDuration(value: unknown, what: string): number | undefined {
  return value === undefined ? undefined : parseDuration(value, what);
}

function fromText(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text);
  return match ? Number(match[1]) * UNIT_MS[match[2] as Unit] : Number.NaN;
}

/** A wrong value in a message: short, quoted, and never a whole object, which might hold secrets. */
export function show(value: unknown): string {
  if (typeof value === 'string') return quote(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === 'object' && value !== null)
    return Array.isArray(value) ? (value.length === 0 ? 'an empty array' : 'an array') : 'an object';
  if (typeof value === 'function') return 'a function';
  return String(value);
}
