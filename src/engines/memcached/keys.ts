/**
 * Names become keys, and names become servers.
 *
 *     <namespace>:<name>     a lock
 *     <namespace>:%token     the last token of this namespace on this server; no name becomes this
 *
 * A key ends at a space and a command at a line break, so a name that went in as it is could carry a command of its own.
 * Only harmless characters stay; the others become %XX. What gets longer than memcached allows is cut and hashed.
 */
import { createHash } from 'node:crypto';
import { addressOf, type MemcachedServer } from './client/connection.js';
import type { MemcachedUrl } from './url.js';

/** Of each half: memcached's own limit is 250 for both. */
const LONGEST = 120;
/** Of what is hashed; `%~` and 32 hexadecimal digits come behind it. */
const KEPT = 75;

export function lockKey(namespace: string, name: string): string {
  return `${encode(namespace, /[^\w.-]/g)}:${encode(name, /[^\w.:-]/g)}`;
}

export function tokenKey(namespace: string): string {
  return `${encode(namespace, /[^\w.-]/g)}:%token`;
}

/** @param harmful what does not stay as it is. Without the colon in the namespace, the first one ends it. */
function encode(text: string, harmful: RegExp): string {
  const isHarmless = text.search(harmful) === -1;
  const key = isHarmless ? text : Buffer.from(text).toString('latin1').replace(harmful, escaped);
  if (key.length <= LONGEST) return key;
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 32);
  // No name that is not hashed has a percent sign followed by this.
  return `${key.slice(0, KEPT)}%~${hash}`;
}

function escaped(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
}

/**
 * The server of a name: the one whose hash with it is the highest. When the list changes, only the names of the server
 * that went or came move; while some instances know the old list and others the new, these have two servers.
 */
function serverOf(servers: readonly MemcachedServer[], name: string): MemcachedServer {
  const weighed = servers.map((server) => ({ server, weight: weight(addressOf(server), name) }));
  return weighed.reduce((best, next) => (next.weight > best.weight ? next : best)).server;
}

/** Servers fail apart, so each is a realm. */
export function realmsOf({ servers }: MemcachedUrl): (name: string) => string {
  const only = servers.length === 1 ? addressOf(servers[0]!) : undefined;
  return (name) => only ?? addressOf(serverOf(servers, name));
}

function weight(address: string, name: string): string {
  return createHash('sha256').update(`${address}\0${name}`).digest('hex');
}
