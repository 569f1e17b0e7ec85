/** The processes of this machine, as /proc or ps(1) shows them. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** Tells it from a later process that was given the same pid. */
  readonly started: string;
  /** A zombie can do nothing any more: it only waits to be collected. */
  readonly zombie: boolean;
}

export interface ProcessLook {
  readonly entries: readonly ProcessEntry[];
  /** Those that were there in the beginning, and had ended when they were looked at. */
  readonly ended: readonly number[];
}

export function processes(): ProcessLook {
  return fromProc() ?? { entries: fromPs(), ended: [] };
}

/** Linux. Undefined where there is no /proc. */
function fromProc(): ProcessLook | undefined {
  let pids: string[];
  try {
    pids = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  } catch {
    return undefined;
  }
  const entries: ProcessEntry[] = [];
  const ended: number[] = [];
  for (const pid of pids) {
    const entry = statOf(pid);
    if (entry) entries.push(entry);
    else ended.push(Number(pid));
  }
  return pids.length === 0 ? undefined : { entries, ended };
}

function statOf(pid: string): ProcessEntry | undefined {
  try {
    const [state, parent, group, session, ...rest] = statFields(pid);
    return {
      pid: Number(pid),
      parent: Number(parent),
      group: Number(group),
      session: Number(session),
      started: rest[15]!,
      zombie: state === 'Z' || state === 'X',
    };
  } catch {
    return undefined;
  }
}

/** From field 3 on. The name in field 2 may contain anything, so count from its last bracket. */
function statFields(pid: string): string[] {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Whether a process was started with a text in its environment. False where that can't be told. */
export function startedWith(pid: number, text: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(text);
  } catch {
    return false;
  }
}

/** Some systems know no number of a session: then there is only the group. */
function fromPs(): ProcessEntry[] {
  const columns = 'pid=,ppid=,pgid=,sess=,stat=,lstart=';
  const { stdout } = spawnSync('ps', ['-A', '-o', columns], { encoding: 'utf8' });
  return (stdout ?? '').split('\n').flatMap((line) => {
    const [pid, parent, group, session, state, ...started] = line.trim().split(/\s+/);
    if (state === undefined) return [];
    return [
      {
        pid: Number(pid),
        parent: Number(parent),
        group: Number(group),
        session: Number(session),
        started: started.join(' '),
        zombie: state.startsWith('Z'),
      },
    ];
  });
}
