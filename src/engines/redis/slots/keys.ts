/**
 * The keys of locks that are one key each. It is what other programs use, so it has no prefix but the user's; what we
 * keep beside it must live in the same slot of a cluster, or no script could use both.
 *
 *     <key>                     the lock
 *     holdfast_token:{<key>}    the last token, for an hour: tokens do not fall if the clock is set back a little
 *     holdfast_freed:{<key>}    a channel: the lock was freed by one of us
 */
import type { KeyOf } from '../../../kit/encoded-name.js';

/**
 * A colon in the namespace would be taken for the one that ends it. What begins with `holdfast_` (tokens, ballots, fences) is no
 * lock's, so no namespace may begin so.
 */
export function keysUnder(namespace: string): KeyOf {
  const prefix = namespace.replace(/[%:{}]/g, encodeURIComponent).replace(/^holdfast_/, 'holdfast%5F');
  return (name) => `${prefix}:${looksLikeOurs(name) ? name.replace(/[%{}]/g, encodeURIComponent) : name}`;
}

/**
 * Keys that the queue and the registers have below a namespace (queue/keys.ts): a lock called `{0}:state` would be the whole queue's
 * state. Such a name is encoded, and so is what it would be then, or two names would have one key.
 */
const OURS = /(^|:)(\{|%(25)*7B)\d{1,2}(\}|%(25)*7D):(sessions$|state$|order$|register:)/i;

function looksLikeOurs(name: string): boolean {
  return OURS.test(name);
}

/** Undefined where no other key can share the slot: a key with a closing brace that ends no hash tag. */
function beside(what: string, key: string): string | undefined {
  if (/^[^{]*\{[^}]+\}/.test(key)) return `${what}:${key}`;
  return key.includes('}') ? undefined : `${what}:{${key}}`;
}

export function tokenKey(key: string): string | undefined {
  return beside('holdfast_token', key);
}

export function freedChannel(key: string): string | undefined {
  return beside('holdfast_freed', key);
}

/** How long a last token is remembered. */
export const TOKEN_MEMORY_MS = 3_600_000;
