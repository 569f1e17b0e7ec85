import { DeadlockError, quote } from './errors.js';
import { type Frame, stillThere, Wait, type Waited } from './reentrancy.js';
import type { Turn } from './turn.js';
import type { Waiter } from './waiter.js';

/** How many names of a long cycle are shown at either end. */
const SHOWN = 4;

/** What code is about to wait for, and which turns must end before it has it. */
interface Want {
  readonly on: Waited;
  readonly blockers: () => Iterable<Turn>;
}

/**
 * Called when an acquire begins to wait. A wait can only deadlock inside this process when the code that asks is inside a `run`
 * that somebody, directly or through other waits, waits for: then it is refused. Leases taken with `acquire` are not considered,
 * because nothing says which code will release them; neither is what ends by itself, because then the cycle does too.
 */
export function beginWait(waiter: Waiter, on: Waited): void {
  const { frame } = waiter;
  if (!frame || frame.over) return;
  const want: Want = { on, blockers: () => on.holders(waiter) };
  refuseCycle(want, frame);
  if (!waiter.endsByItself) waiter.wait = new Wait(on, want.blockers, frame);
}

/** The same for code that waits until nobody is inside a turn any more. */
export function beginEmptying(
  floor: Waited & { occupants(): Iterable<Turn> },
  frame: Frame | undefined,
): Wait | undefined {
  const waiting = stillThere(frame);
  if (!waiting) return undefined;
  const want: Want = { on: floor, blockers: () => insideOf(floor) };
  refuseCycle(want, waiting);
  return new Wait(floor, want.blockers, waiting);
}

/** Also those inside a turn that is only kept for them. */
function* insideOf(floor: { occupants(): Iterable<Turn> }): Iterable<Turn> {
  for (const turn of floor.occupants()) yield* turn.blockers();
}

function refuseCycle(want: Want, frame: Frame): void {
  const asking = new Set(frame.chain());
  // What stands before code that nobody waits for need not be followed, however much it is.
  const cycle = mayClose(asking, want.on) && findCycle(want, asking);
  if (!cycle) return;
  throw new DeadlockError(
    `Waiting for ${quote(want.on.name)} here would never end: ${namesOf(cycle)} → this code. ` +
      'Take locks in one order everywhere, or together with all().',
    cycle,
  );
}

/** A long one is cut in the middle, for people; the error has all of it. */
function namesOf(cycle: readonly string[]): string {
  const names = cycle.map(quote);
  const left = names.length - 2 * SHOWN;
  if (left > 1) names.splice(SHOWN, left, `${left} more`);
  return names.join(' → ');
}

/** Whether anybody waits for what this code is inside of, or it would itself wait for that. */
function mayClose(frames: Iterable<Frame>, wanted: Waited): boolean {
  for (const { turn } of frames)
    for (let at: Turn | undefined = turn; at; at = at.outer) if (at.waitedFor || wanted.carries(at)) return true;
  return false;
}

/** What was reached, and from where. */
interface Reached {
  readonly want: Want;
  readonly from: Reached | undefined;
}

/** The names of what stands between `want` and a frame that the asking code is inside of. */
function findCycle(want: Want, asking: ReadonlySet<Frame>): string[] | undefined {
  const seen = new Set<Frame>();
  const reached: Reached[] = [{ want, from: undefined }];
  for (const at of reached) {
    for (const { frame, endsAt } of at.want.blockers()) {
      if (!frame || frame.over || endsAt < Number.POSITIVE_INFINITY) continue;
      if (asking.has(frame)) return namesTo(at);
      if (seen.has(frame)) continue;
      seen.add(frame);
      for (const wait of frame.waits) reached.push({ want: wait, from: at });
    }
  }
  return undefined;
}

function namesTo(last: Reached): string[] {
  const names: string[] = [];
  for (let at: Reached | undefined = last; at; at = at.from) names.unshift(at.want.on.name);
  return names;
}
