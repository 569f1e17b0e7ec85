import { type Duration, optionalDuration, parseDuration, show } from '../core/duration.js';
import type { RegisterEntry, Registers } from '../core/engine.js';
import { Caller, ConfigError, EngineError, fromHere } from '../core/errors.js';
import type { Instance } from '../core/instance.js';
import { ALL } from '../core/line.js';
import { checkOptions, type Known } from '../core/options.js';
import { taskForRun } from '../core/reentrancy.js';
import type { Lease } from './lease.js';
import { LineLock } from './lock.js';
import { runInside } from './run.js';

export interface OnceOptions {
  /**
   * For this long after a run, nobody runs it again, even if it was quick or its process died. It counts from the moment at
   * which the engine notes the run, just before the function is called. Default 0.
   */
  readonly atLeast?: Duration;
  /** The run is lost after this long (`maxHold`). Default: as long as it takes. */
  readonly atMost?: Duration;
  /**
   * What a run counts as whose function throws: `keep`, as any other, so that nobody runs it again before `atLeast` is over; `retry`, as
   * none, so that the next call runs it. A run whose process dies counts in either case. Default: `keep`.
   */
  readonly onError?: 'keep' | 'retry';
  readonly label?: string;
}

export type OnceResult<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

const ONCE_OPTIONS: Known<OnceOptions> = { atLeast: true, atMost: true, onError: true, label: true };

/** A run counts for this much longer than `atLeast`, because engines count whole milliseconds. */
const TICK_MS = 1;

/** It is remembered for a little longer than it counts, because engines round. */
const MARGIN_MS = 1_000;

/** In place of a run that is to be tried again. */
const NO_RUN = 'none';

/**
 * Runs `work` once across the fleet, or not at all if another runs it or ran it less than `atLeast` ago. The time of the
 * last run stands in a register of its own, so it outlives the process, and its age is the engine's business. When it is
 * old enough to forbid nothing, the engine forgets it.
 *
 * @internal
 */
export async function once<T>(
  instance: Instance,
  name: string,
  options: OnceOptions,
  work: (lease: Lease) => T | PromiseLike<T>,
): Promise<OnceResult<T>> {
  checkOptions(options, ONCE_OPTIONS, 'once');
  const { label, onError = 'keep' } = options;
  if (onError !== 'keep' && onError !== 'retry')
    throw new ConfigError(`onError is 'keep' or 'retry'; got ${show(onError)}.`);
  const atLeastMs = parseDuration(options.atLeast ?? 0, 'atLeast');
  const lock = new LineLock(instance, { kind: 'lock', name, weight: ALL, capacity: ALL, reentrant: false });
  const atMostMs = optionalDuration(options.atMost, 'atMost');
  const task = taskForRun();
  const wanted = { ...(atMostMs !== undefined && { maxHold: atMostMs }), ...(label !== undefined && { label }) };
  const caller = new Caller();
  const fail = (error: unknown): never => {
    throw fromHere(error, caller);
  };
  const lease = await throughGuard(instance, () => lock.take(wanted, false, { task })).catch(fail);
  if (!lease) return { ran: false };
  // All of it is work of ours: an instance that closes lets it end, so that no run is noted that never begins.
  return runInside(instance, [lock.frameFor(lease, task)], async () => {
    const note = await claimRun(instance, name, lease, atLeastMs).catch(fail);
    if (!note) return { ran: false };
    return { ran: true, value: await runNoted(note, lease, onError, () => work(lease)) };
  });
}

/**
 * A server that grants nothing for a while says nothing about who runs it: to skip it would be to skip it on every machine. So
 * that is waited for.
 */
async function throughGuard<T>(instance: Instance, ask: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof EngineError && error.retryAfterMs !== undefined)) throw error;
      await instance.pause(error.retryAfterMs);
    }
  }
}

/** What the engine is to remember of this run. Each is false if a newer lease has been here. */
interface RunNote {
  /** We run: `atLeast` counts from there. */
  runs(): Promise<boolean>;
  /** Our run counts as none. */
  takeBack(): Promise<boolean>;
}

/** Where nothing is to be remembered nothing is left behind: the lock is enough. */
const NO_NOTE: RunNote = { runs: () => Promise.resolve(true), takeBack: () => Promise.resolve(true) };

/**
 * Undefined if the last run forbids another, or a newer lease has been here. Else notes that we run, before we do: if we
 * die, `atLeast` still counts.
 */
async function claimRun(
  instance: Instance,
  name: string,
  { token }: Lease,
  atLeastMs: number,
): Promise<RunNote | undefined> {
  const register = `once\u001f${name}`;
  const registers = await instance.registers('once');
  const ask = <A>(call: (registers: Registers) => Promise<A>): Promise<A> =>
    instance.call('once', () => call(registers));
  const last = await ask((of) => of.read(register));
  if (!last.ok || (last.value && forbids(last.value))) return undefined;
  if (atLeastMs === 0) return NO_NOTE;
  const write = async (value: string, forMs: number, as = token): Promise<boolean> =>
    (await ask((of) => of.write(register, value, as, Math.ceil(forMs) + MARGIN_MS))).ok;
  const note: RunNote = {
    runs: () => write(String(atLeastMs + TICK_MS), atLeastMs),
    // As one that came after us: a note that was on its way for too long must not be the last word.
    takeBack: () => write(NO_RUN, instance.options.ttlMs, token + 1n),
  };
  try {
    // A lease that was overtaken since is refused here by its token; or, if that is forgotten already, before its work begins.
    return (await note.runs()) ? note : undefined;
  } catch (error) {
    // The engine may have heard it, and we do not run.
    await note.takeBack().catch(() => {});
    throw error;
  }
}

/**
 * Notes once more that we run, when we do: the answer to the first note may have been on its way for long, and the next run
 * would begin too early by that. The lock is kept until the engine has heard it. If the engine can't be told, what it heard
 * before counts: what the function gives or throws is what matters.
 */
async function runNoted<T>(
  note: RunNote,
  lease: Lease,
  onError: 'keep' | 'retry',
  work: () => T | PromiseLike<T>,
): Promise<T> {
  try {
    lease.assertHeld();
  } catch (error) {
    await note.takeBack().catch(() => {});
    throw error;
  }
  const working = (async () => work())();
  const [{ status }] = await Promise.allSettled([working, note.runs()]);
  if (status === 'rejected' && onError === 'retry') await note.takeBack().catch(() => {});
  return working;
}

/** A note from further ahead than it counts can't be of a run just now: the clock that it was written by was wrong. */
function forbids({ value, ageMs }: RegisterEntry): boolean {
  if (value === NO_RUN) return false;
  return ageMs < Number(value) && ageMs > -Number(value);
}
