/** What is run on an engine and what of it is judged, both from its traits: nothing is asked for that it refuses. */
import { Holdfast, type Traits } from 'holdfast';
import type { Property } from './history.js';
import { NEMESES } from './nemeses.js';
import type { Target, TargetKind } from './targets.js';
import { modeOf } from './worker-setup.js';

/** Traits are data: nothing is connected for them. */
export async function traitsOf(target: Target): Promise<Traits> {
  return new Holdfast(await target.urlFor('w1')).traits;
}

/** Eight names on an engine that can do everything. */
export function namesFor({ sharing, registers, listing }: Traits): readonly string[] {
  return [
    ...['mutex-1', 'mutex-2', 'mutex-3', 'reentrant-1'],
    ...(sharing === 'exclusive' ? [] : ['write-1', 'write-2']),
    ...(sharing === 'weighted' ? ['semaphore-1'] : []),
    ...(registers && listing ? ['election-1'] : []),
  ];
}

/** One holder at a time: all that the locks of others can do. */
export function isExclusive(name: string): boolean {
  return !['semaphore', 'write'].includes(modeOf(name));
}

/** What the engine's page does not promise under these nemeses: counted, not judged. */
export function sparedOf(traits: Traits, kind: TargetKind, nemeses: readonly string[]): ReadonlySet<Property> {
  return new Set([
    ...(kind.spares ?? []),
    ...nemeses.flatMap((name) => [...(NEMESES[name]!.spares ?? []), ...(kind.sparesUnder?.[name] ?? [])]),
    ...(traits.order === 'fifo' ? [] : (['fifo'] as const)),
    // Only in a listing can it be seen that a lock is free while somebody waits.
    ...(traits.listing ? [] : (['fifo', 'wakeups'] as const)),
  ]);
}
