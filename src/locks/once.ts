import { type Duration, parseDuration } from '../core/duration.js';
import type { Instance } from '../core/instance.js';
import { ALL } from '../core/line.js';
import { taskForRun } from '../core/reentrancy.js';
import type { Lease } from './lease.js';
import { LineLock } from './lock.js';
import { runInside } from './run.js';

export interface OnceOptions {
  /** For this long after a run began, nobody runs it again, even if it was quick or its process died. Default 0. */
  readonly atLeast?: Duration;
  /** The run is lost after this long (`maxHold`). Default: as long as it takes. */
  readonly atMost?: Duration;
  readonly label?: string;
}

export type OnceResult<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

/** A run is remembered for a little longer than `atLeast`, because engines round. */
const MARGIN_MS = 1_000;

/**
 * Runs `work` once across the fleet, or not at all if another runs it or ran it less than `atLeast` ago. The time of the
 * last run stands in a register of its own, so it outlives the process, and its age is the engine's business. When it is
 * old enough to forbid nothing, the engine forgets it.
 */
export async function once<T>(
  instance: Instance,
  name: string,
  options: OnceOptions,
  work: (lease: Lease) => T | PromiseLike<T>,
): Promise<OnceResult<T>> {
  const atLeastMs = parseDuration(options.atLeast ?? 0, 'atLeast');
  const lock = new LineLock(instance, { kind: 'lock', name, weight: ALL, capacity: ALL, reentrant: false });
  const { label } = options;
  const atMostMs = options.atMost === undefined ? undefined : parseDuration(options.atMost, 'atMost');
  const task = taskForRun();
  const lease = await lock.take(
    { ...(atMostMs !== undefined && { maxHold: atMostMs }), ...(label !== undefined && { label }) },
    false,
    task,
  );
  if (!lease) return { ran: false };
  let due: boolean;
  try {
    due = await claimRun(instance, name, lease, atLeastMs);
  } catch (error) {
    await lease.release();
    throw error;
  }
  if (!due) {
    await lease.release();
    return { ran: false };
  }
  const value = await runInside(instance, [lock.frameFor(lease, task)], () => work(lease));
  return { ran: true, value };
}

/**
 * False if the last run forbids another, or a newer lease has been here. Else notes that we run, before we do: if we
 * die, `atLeast` still counts. Where nothing is to be remembered nothing is left behind: the lock is enough.
 */
async function claimRun(instance: Instance, name: string, { token }: Lease, atLeastMs: number): Promise<boolean> {
  const register = `once\u001f${name}`;
  const { registers } = await instance.engine('once');
  const last = await instance.call('once', registers!.read(register));
  if (!last.ok || (last.value && last.value.ageMs < Number(last.value.value))) return false;
  if (atLeastMs === 0) return true;
  // A lease that was overtaken since is refused here by its token; or, if that is forgotten already, before its work begins.
  const keepMs = Math.ceil(atLeastMs) + MARGIN_MS;
  const noted = await instance.call('once', registers!.write(register, String(atLeastMs), token, keepMs));
  return noted.ok;
}
