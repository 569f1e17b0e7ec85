import { DeadlockError, quote } from './errors.js';
import { currentFrame, type Frame, Wait, type Waited } from './reentrancy.js';
import type { Waiter } from './waiter.js';

/**
 * Called before a wait begins. A wait can only deadlock inside this process when the running code is inside a `run`
 * that somebody, directly or through other waits, waits for: then it is refused at once. Leases taken with `acquire`
 * are not considered, because nothing says which code will release them.
 */
export function beginWait(waiter: Waiter, on: Waited): void {
  const frame = currentFrame();
  if (!frame) return;
  const cycle = findCycle(on, frame, new Set());
  if (cycle) {
    throw new DeadlockError(
      `Waiting for ${quote(on.name)} here would never end: ${cycle.map(quote).join(' → ')} → this code. ` +
        'Take locks in one order everywhere, or together with all().',
      cycle,
    );
  }
  waiter.wait = new Wait(on, frame);
}

/** The names of what stands between `wanted` and a frame that the asking code is inside of. */
function findCycle(wanted: Waited, asking: Frame, seen: Set<Waited>): string[] | undefined {
  if (seen.has(wanted)) return undefined;
  seen.add(wanted);
  for (const holder of wanted.holderFrames()) {
    // A run that has ended only waits for what is left on its floor, not for code that it left behind.
    if (holder.closed) continue;
    if (asking.isWithin(holder)) return [wanted.name];
    for (const { on } of holder.waits) {
      const rest = findCycle(on, asking, seen);
      if (rest) return [wanted.name, ...rest];
    }
  }
  return undefined;
}
