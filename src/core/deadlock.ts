import { DeadlockError, quote } from './errors.js';
import { type Frame, Wait, type Waited } from './reentrancy.js';
import type { Turn } from './turn.js';
import type { Waiter } from './waiter.js';

/**
 * Called when a wait begins. A wait can only deadlock inside this process when the code that asks is inside a `run` that
 * somebody, directly or through other waits, waits for: then it is refused. Leases taken with `acquire` are not considered,
 * because nothing says which code will release them; neither is what ends by itself, because then the cycle does too.
 */
export function beginWait(waiter: Waiter, on: Waited): void {
  const { frame } = waiter;
  if (!frame || frame.over) return;
  const asking = new Set(frame.chain());
  // What stands before code that nobody waits for need not be followed, however much it is.
  const cycle = mayClose(asking, on) && findCycle({ on, weight: waiter.weight, from: undefined }, asking);
  if (cycle) {
    throw new DeadlockError(
      `Waiting for ${quote(on.name)} here would never end: ${cycle.map(quote).join(' → ')} → this code. ` +
        'Take locks in one order everywhere, or together with all().',
      cycle,
    );
  }
  if (!waiter.endsByItself) waiter.wait = new Wait(on, waiter.weight, frame);
}

/** Whether anybody waits for what this code is inside of, or it would itself wait for that. */
function mayClose(frames: Iterable<Frame>, wanted: Waited): boolean {
  for (const { turn } of frames)
    for (let at: Turn | undefined = turn; at; at = at.outer) if (at.waitedFor || wanted.carries(at)) return true;
  return false;
}

/** What was reached, and from where. */
interface Reached {
  readonly on: Waited;
  readonly weight: number;
  readonly from: Reached | undefined;
}

/** The names of what stands between `wanted` and a frame that the asking code is inside of. */
function findCycle(wanted: Reached, asking: ReadonlySet<Frame>): string[] | undefined {
  const seen = new Set<Frame>();
  const reached = [wanted];
  for (const at of reached) {
    for (const { frame, endsAt } of at.on.holders(at.weight)) {
      if (!frame || frame.over || endsAt < Number.POSITIVE_INFINITY) continue;
      if (asking.has(frame)) return namesTo(at);
      if (seen.has(frame)) continue;
      seen.add(frame);
      for (const { on, weight } of frame.waits) reached.push({ on, weight, from: at });
    }
  }
  return undefined;
}

function namesTo(last: Reached): string[] {
  const names: string[] = [];
  for (let at: Reached | undefined = last; at; at = at.from) names.unshift(at.on.name);
  return names;
}
