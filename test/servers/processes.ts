/**
 * Signals to a server and to the processes it forked, by their ids and never by a name: other people's servers of the
 * same kind may run on this machine.
 *
 * The family matters: PostgreSQL answers from forked backends, so stopping the first process alone leaves a server that
 * still answers, and killing it alone leaves backends that hold the shared memory against the next start.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { waitFor } from './wait.js';

/** The kernel needs a moment to stop or end a process that waits for a disk. */
const OBEYS_WITHIN_MS = 30_000;

/**
 * Not gone and not a zombie: a process whose exit nobody has collected yet holds neither ports nor files. But one with
 * several threads (Redis) looks like a zombie when its first thread has ended, and its ports stay open until the last has.
 */
export function isRunning(pid: number): boolean {
  const { state, threads } = statusOf(pid) ?? {};
  if (state !== undefined) return state !== 'X' && (state !== 'Z' || Number(threads) > 1);
  return process.platform !== 'linux' && canSignal(pid);
}

/** None of its threads runs, so that it neither answers nor forks. */
export function isPaused(pid: number): boolean {
  const tasks = tasksOf(pid);
  return tasks.length > 0 && tasks.every((task) => statusOf(`${pid}/task/${task}`)?.state === 'T');
}

/** The process and everything it started, itself first. Where there is no /proc it is just the process. */
export function familyOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(familyOf)];
}

/**
 * Stops the process and everything that it started or still starts, and answers with all of them. A signal to those who are
 * listed is not enough: the process may fork between the list and the signal. So it is over when a list has nobody in it
 * who was not seen to stand still before that list was made.
 */
export async function freeze(pid: number): Promise<readonly number[]> {
  const still = new Set<number>();
  let family: readonly number[] = [];
  const allStill = await waitFor(() => {
    family = familyOf(pid);
    const moving = family.filter((each) => !still.has(each));
    signal(moving, 'SIGSTOP');
    for (const each of moving) if (standsStill(each)) still.add(each);
    return moving.length === 0;
  }, OBEYS_WITHIN_MS);
  if (!allStill) throw new Error(`processes ${family.join(', ')} do not stop`);
  return family;
}

function standsStill(pid: number): boolean {
  // Where there is no /proc nobody can tell.
  return process.platform !== 'linux' || isPaused(pid) || !isRunning(pid);
}

/** Ends the process and everything that it started or still starts. */
export async function kill(pid: number): Promise<void> {
  const family = await freeze(pid);
  signal(family, 'SIGKILL');
  await ended(family);
}

/** The same where nothing can be awaited. */
export function killNow(pid: number): void {
  let known = 0;
  for (let family = [pid]; family.length > known; family = familyOf(pid)) {
    known = family.length;
    signal(family, 'SIGSTOP');
  }
  signal(familyOf(pid), 'SIGKILL');
}

/** Waits for the end of processes that were told to end. What ignores that is killed, and what survives that is an error. */
export async function ended(pids: readonly number[]): Promise<void> {
  signal(pids.filter(isRunning), 'SIGKILL');
  const gone = await waitFor(() => !pids.some(isRunning), OBEYS_WITHIN_MS);
  if (!gone) throw new Error(`processes ${pids.filter(isRunning).join(', ')} survive SIGKILL`);
}

/** One that ended in the meantime is what a signal wanted anyway. */
export function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

function statusOf(process: number | string): { state?: string | undefined; threads?: string | undefined } | undefined {
  try {
    // "pid (name) state …": the name may hold spaces and parentheses, so the fields begin after the last of them.
    const stat = readFileSync(`/proc/${process}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0], threads: fields[17] };
  } catch {
    return undefined;
  }
}

function childrenOf(pid: number): number[] {
  return tasksOf(pid).flatMap((task) => {
    try {
      const list = readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8');
      return list.split(' ').filter(Boolean).map(Number);
    } catch {
      // A thread that has ended since; its children are another thread's now, and the next list has them.
      return [];
    }
  });
}

function tasksOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

function canSignal(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
