import { type Duration, parseDuration } from '../../core/duration.js';

/**
 * What a user says of the guard after a restart or a failover. `false`: there is none. A duration: it lasts at least so long. `true`,
 * the default: as long as the longest ttl that the server knows of.
 */
export type EpochGuard = boolean | Duration;

/** How long the guard lasts at least, in ms; undefined: there is none. */
export function leastGuardMs(guard: EpochGuard): number | undefined {
  if (guard === false) return undefined;
  return guard === true ? 0 : Math.ceil(parseDuration(guard, 'epochGuard'));
}

/** The same as a word of a script's call: 0 where there is none. */
export function guardWord(leastMs: number | undefined): string {
  return leastMs === undefined ? '0' : `${Math.max(1, leastMs)}`;
}

/** What its users are told. */
export const GUARD_REMEDY = '?epochGuard=false is for throw-away servers (docs/engines/redis.md)';
