/**
 * Names become keys, and names become servers.
 *
 *     <namespace>:<name>     a lock
 *     <namespace>::token     the last token of this namespace on this server; no lock has an empty name
 *
 * A key ends at a space and a command at a line break, so a name that went in as it is could carry a command of its own.
 * Only harmless characters stay; the others become %XX. What gets longer than memcached allows is cut and hashed.
 */
import { createHash } from 'node:crypto';
import { addressOf, type MemcachedServer, type MemcachedUrl } from './url.js';

/** memcached's own limit is 250. */
const LONGEST = 240;
const KEPT = 150;

export function lockKey(namespace: string, name: string): string {
  return `${encode(namespace, '.-_')}:${encode(name, '.-_:')}`;
}

export function tokenKey(namespace: string): string {
  return `${encode(namespace, '.-_')}::token`;
}

function encode(text: string, harmless: string): string {
  let key = '';
  for (const byte of Buffer.from(text)) {
    const character = String.fromCharCode(byte);
    const stays = /[A-Za-z0-9]/.test(character) || harmless.includes(character);
    key += stays ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  if (key.length <= LONGEST / 2) return key;
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 32);
  // No name that stays as it is has a percent sign followed by this.
  return `${key.slice(0, KEPT / 2)}%~${hash}`;
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
  return (name) => addressOf(serverOf(servers, name));
}

function weight(address: string, name: string): string {
  return createHash('sha256').update(`${address}\0${name}`).digest('hex');
}
