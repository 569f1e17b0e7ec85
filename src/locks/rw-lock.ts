import type { Instance } from '../core/instance.js';
import { ALL } from '../core/line.js';
import type { WriteLease } from './lease.js';
import { LineLock, type Lock } from './lock.js';

/** Readers share, writers exclude. Served in order of arrival, so neither starves the other. */
export interface RwLock {
  readonly name: string;
  readonly read: Lock;
  readonly write: Lock<WriteLease>;
}

/** @internal */
export function rwLock(instance: Instance, name: string): RwLock {
  const spec = { kind: 'lock', name, capacity: ALL, rw: true } as const;
  return {
    name,
    read: new LineLock(instance, { ...spec, weight: 1 }),
    write: new LineLock<WriteLease>(instance, { ...spec, weight: ALL }),
  };
}
