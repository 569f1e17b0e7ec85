/** Other libraries that lock with one key, as their documentation shows them, each with connections of its own. */
import type { Redisson } from 'node-redisson';

export interface Peer extends AsyncDisposable {
  /** The key that it uses for a lock of this name. */
  readonly keyOf: (name: string) => string;
  /** Waits. */
  lock(name: string): Promise<Unlock>;
  /** Undefined: somebody else has it. */
  tryLock(name: string): Promise<Unlock | undefined>;
}

export type Unlock = () => Promise<unknown>;

export type PeerName = 'redlock' | 'redis-semaphore' | 'node-redisson';

export const PEERS: Readonly<Record<PeerName, (port: number, ttlMs: number) => Peer>>;

/** With its watchdog: the ttl is renewed every third of it. */
export function connectRedisson(port: number, ttlMs: number): Redisson & AsyncDisposable;
