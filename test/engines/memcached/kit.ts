/** What the tests of memcached share. */
import { Holdfast, type HoldfastOptions } from '../../../src/index.js';
import { ask, LOOPBACK } from '../../servers/ports.js';

/** The shortest that memcached can keep. */
export const TTL_MS = 3_000;

export function urlOf(...ports: readonly number[]): string {
  return `memcached://${ports.map((port) => `${LOOPBACK}:${port}`).join(',')}`;
}

/** A user with connections of its own. */
export function user(port: number, options: HoldfastOptions = {}): Holdfast {
  return new Holdfast(urlOf(port), { ttl: TTL_MS, ...options });
}

/** What is stored for a lock; undefined: nothing. */
export async function stored(port: number, name: string): Promise<string | undefined> {
  const answer = await ask(port, `mg holdfast:${name} v\r\n`);
  return answer === 'EN\r\n' ? undefined : answer.split('\r\n')[1];
}
