/** The command's processes: its whole group where it has one of its own, else the child alone. */
import { type ChildProcess, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

const LOOK_MS = 10;
/** Where processes come and go all the time, no look may be a whole one. Then they are alive, until asked again. */
const MOST_LOOKS = 10;

export class ProcessGroup {
  readonly #child: ChildProcess;
  readonly #pid: number;
  readonly #own: boolean;

  /** @param own whether the child leads a group of its own. */
  constructor(child: ChildProcess, pid: number, own: boolean) {
    this.#child = child;
    this.#pid = pid;
    this.#own = own;
  }

  /** To all of them. Who is gone already misses nothing. */
  signal(signal: NodeJS.Signals): void {
    if (!this.#own) {
      this.#child.kill(signal);
      return;
    }
    try {
      process.kill(-this.#pid, signal);
    } catch {
      // ESRCH: nobody is left. EPERM: those who are left belong to another user, and only root could help.
    }
  }

  /**
   * Whether one of them can still do anything: a zombie can't, it only waits to be collected.
   *
   * A look takes a moment, in which one of them may start another and end, and neither is seen. So nobody counts as gone
   * before a look in which no process ended, and in which all that were found were zombies by the last look already.
   */
  alive(): boolean {
    if (!this.#own) return processes().entries.some(({ pid, zombie }) => pid === this.#pid && !zombie);
    let ended: ReadonlySet<number> = new Set();
    for (let look = 0; look < MOST_LOOKS && this.#exists(); look += 1) {
      const { entries, whole } = processes();
      const mine = entries.filter(({ group }) => group === this.#pid);
      if (mine.some(({ zombie }) => !zombie)) return true;
      if (whole && mine.every(({ pid }) => ended.has(pid))) return false;
      ended = new Set(mine.map(({ pid }) => pid));
    }
    return this.#exists();
  }

  /** Whether the group has anybody in it, zombies too. */
  #exists(): boolean {
    try {
      return process.kill(-this.#pid, 0);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code !== 'ESRCH';
    }
  }

  /** True when all are gone, false at the time given (of `performance.now()`). */
  async goneBy(time: number): Promise<boolean> {
    while (this.alive()) {
      if (performance.now() >= time) return false;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return true;
  }

  /** The same without letting anything else of this process happen. */
  goneBySync(time: number): boolean {
    while (this.alive()) {
      if (performance.now() >= time) return false;
      Atomics.wait(SLEEP, 0, 0, LOOK_MS);
    }
    return true;
  }
}

const SLEEP = new Int32Array(new SharedArrayBuffer(4));

interface ProcessEntry {
  readonly pid: number;
  readonly group: number;
  readonly zombie: boolean;
}

interface Look {
  readonly entries: readonly ProcessEntry[];
  /** No process that was there in the beginning had ended when it was looked at. */
  readonly whole: boolean;
}

function processes(): Look {
  return fromProc() ?? { entries: fromPs(), whole: true };
}

/** Linux. Undefined where there is no /proc. */
function fromProc(): Look | undefined {
  let pids: string[];
  try {
    pids = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  } catch {
    return undefined;
  }
  const entries = pids.flatMap((pid) => statOf(pid) ?? []);
  return pids.length === 0 ? undefined : { entries, whole: entries.length === pids.length };
}

/** Fields 3 and 5 of stat. The name in field 2 may contain anything, so count from its last bracket. */
function statOf(pid: string): ProcessEntry | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { pid: Number(pid), group: Number(group), zombie: state === 'Z' || state === 'X' };
  } catch {
    return undefined;
  }
}

function fromPs(): ProcessEntry[] {
  const { stdout } = spawnSync('ps', ['-A', '-o', 'pid=,pgid=,stat='], { encoding: 'utf8' });
  return (stdout ?? '').split('\n').flatMap((line) => {
    const [pid, group, state] = line.trim().split(/\s+/);
    return state === undefined ? [] : [{ pid: Number(pid), group: Number(group), zombie: state.startsWith('Z') }];
  });
}
