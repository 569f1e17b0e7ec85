/**
 * Signals to a server and to the processes it forked, by their ids and never by a name: other people's servers of the
 * same kind may run on this machine.
 *
 * The family matters: PostgreSQL answers from forked backends, so stopping the first process alone leaves a server that
 * still answers, and killing it alone leaves backends that hold the shared memory against the next start.
 */
import { readdirSync, readFileSync } from 'node:fs';

/**
 * Not gone and not a zombie: a process whose exit nobody has collected yet holds neither ports nor files. But one with
 * several threads (Redis) looks like a zombie when its first thread has ended, and its ports stay open until the last has.
 */
export function isRunning(pid: number): boolean {
  const { state, threads } = statusOf(pid) ?? {};
  if (state !== undefined) return state !== 'X' && (state !== 'Z' || Number(threads) > 1);
  return process.platform !== 'linux' && canSignal(pid);
}

export function isPaused(pid: number): boolean {
  return statusOf(pid)?.state === 'T';
}

/** The process and everything it started, itself first. Where there is no /proc it is just the process. */
export function familyOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(familyOf)];
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

function statusOf(pid: number): { state?: string | undefined; threads?: string | undefined } | undefined {
  try {
    // "pid (name) state …": the name may hold spaces and parentheses, so the fields begin after the last of them.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0], threads: fields[17] };
  } catch {
    return undefined;
  }
}

function childrenOf(pid: number): number[] {
  try {
    const lists = readdirSync(`/proc/${pid}/task`).map((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'),
    );
    return lists.flatMap((list) => list.split(' ').filter(Boolean).map(Number));
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
