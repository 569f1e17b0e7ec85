/** What can be seen of a lock's line from outside, and waiting for it. */
import type { Lease, Lock } from '../../src/index.js';
import { waitFor } from './wait.js';

/** What takes longer than this on a busy machine does not happen. */
export const WITHIN_MS = 40_000;

/** Waits for a condition; fails with its name when it does not come true. */
export async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  if (!(await waitFor(condition, WITHIN_MS))) throw new Error(`not in ${WITHIN_MS} ms: ${what}`);
}

/** How many claims of each kind stand in a lock's line. */
export async function standing(lock: Lock): Promise<{ held: number; waiting: number }> {
  const { claims } = await lock.inspect();
  const held = claims.filter(({ state }) => state === 'held').length;
  return { held, waiting: claims.length - held };
}

export async function queued(lock: Lock, waiting: number): Promise<void> {
  await until(`${waiting} claims wait for ${lock.name}`, async () => (await standing(lock)).waiting === waiting);
}

/** Waits until a beat has renewed a lease that is held: nothing else lets its validity grow. */
export async function renewed(lease: Lease): Promise<void> {
  let before = lease.remaining;
  await until(`a beat renews the lease on ${lease.name}`, () => {
    const grew = lease.remaining > before;
    before = lease.remaining;
    return grew;
  });
}
