/** The unfenced counter: what stalled holders wrote over. No lock can prevent it, so it is published, not judged. */
import type { Run } from '../run.js';

export interface Counted {
  readonly acknowledged: number;
  readonly lost: number;
}

export function countLostUpdates(run: Run): Counted {
  const acknowledged = new Map<string, number>();
  for (const { event, returned } of run.calls)
    if (event.what === 'count' && returned?.out === 'ok')
      acknowledged.set(event.name, (acknowledged.get(event.name) ?? 0) + 1);
  // A count whose return is missing may have been written: then more is in the file than was acknowledged.
  const lost = run.counters.map(({ name, value }) => Math.max(0, (acknowledged.get(name) ?? 0) - value));
  return { acknowledged: sum(acknowledged.values()), lost: sum(lost) };
}

function sum(numbers: Iterable<number>): number {
  return [...numbers].reduce((total, number) => total + number, 0);
}
