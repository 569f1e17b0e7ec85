/**
 * The command and what it started.
 *
 * Away from a terminal the command leads a session of its own. All that it starts is in there, in whatever process group
 * (`timeout`, `set -m`), unless it leaves on purpose. At a terminal it shares ours, so there its descendants are meant, and of
 * our session those that have the mark of this run in their environment: their parents may have ended before anybody looked. Where
 * environments can't be read they are remembered while the parent lives.
 * What has left the session, as sudo's commands do, is a descendant too, as long as its parents live.
 */
import type { ChildProcess } from 'node:child_process';
import { type ProcessEntry, processes, startedWith } from './processes.js';

/** A look reads all of /proc, which takes milliseconds. Who is not gone soon is looked for less and less often. */
const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 500;
const LONGER = 1.3;
const MOST_LOOKS = 5;

export class Family {
  readonly #child: ChildProcess;
  readonly #pid: number;
  readonly #own: boolean;
  readonly #mark: string | undefined;
  readonly #known = new Map<number, string>();
  /** Then the group has at most zombies, which are collected some time, and what belongs to another user. */
  #killed = false;
  #pauseMs = FIRST_PAUSE_MS;
  /** Who was there at the last look and is not of the family: when they end, that tells nothing. */
  #strangers: ReadonlySet<number> = new Set();

  /**
   * @param own whether the child leads a session of its own.
   * @param mark what only its environment, and that of what it starts, has in it.
   */
  constructor(child: ChildProcess, own: boolean, mark?: string) {
    this.#child = child;
    this.#pid = child.pid!;
    this.#own = own;
    this.#mark = mark;
    const command = processes().entries.find(({ pid }) => pid === this.#pid);
    if (command) this.#known.set(this.#pid, command.started);
  }

  /** To the command alone. */
  tell(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** To all of them, or to all but those in the process group of another. Who is gone already misses nothing. */
  signal(signal: NodeJS.Signals, { exceptGroupOf }: { readonly exceptGroupOf?: number } = {}): void {
    this.#pauseMs = FIRST_PAUSE_MS;
    const { entries } = processes();
    const except = entries.find(({ pid }) => pid === exceptGroupOf)?.group;
    const members = this.#members(entries).filter(({ zombie, group }) => !zombie && group !== except);
    if (signal === 'SIGKILL') return this.#kill(members);
    // In one step, so that nobody of the group slips through by starting another.
    if (this.#own) send(-this.#pid, signal);
    for (const { pid, group } of members) if (!(this.#own && group === this.#pid)) send(pid, signal);
  }

  /**
   * All are stopped first, so that nobody goes on to the next thing because somebody that it waited for has ended. Then children
   * before their parents: when the parent of a process group ends, the kernel lets what is stopped in there go on.
   */
  #kill(members: readonly ProcessEntry[]): void {
    this.#killed = true;
    if (this.#own) send(-this.#pid, 'SIGSTOP');
    for (const { pid } of members) send(pid, 'SIGSTOP');
    for (const { pid } of childrenFirst(members)) send(pid, 'SIGKILL');
    if (this.#own) send(-this.#pid, 'SIGKILL');
  }

  /** Those who are found now are remembered. */
  remember(): void {
    this.#members(processes().entries);
  }

  /**
   * Whether one of them can still do anything.
   *
   * A look takes a moment, in which one of them may start another and end, and neither is seen. So nobody counts as gone
   * before a look in which none ended who could have been of the family, and in which all that were found were zombies by
   * the last look already. On a machine where processes come and go all the time there may be no such look: several in a row
   * that found nobody, and an empty process group, must do.
   */
  alive(): boolean {
    let zombies: ReadonlySet<number> | undefined;
    // What was killed starts nobody any more.
    for (let look = 0; look < (this.#killed ? 2 : MOST_LOOKS); look += 1) {
      const { entries, ended } = processes();
      const members = this.#members(entries);
      if (this.#isHidden(entries) || members.some(({ zombie }) => !zombie)) return true;
      const missedNobody = ended.every((pid) => this.#strangers.has(pid));
      const pids = new Set(members.map(({ pid }) => pid));
      this.#strangers = new Set(entries.map(({ pid }) => pid).filter((pid) => !pids.has(pid)));
      if (missedNobody && zombies && members.every(({ pid }) => zombies!.has(pid)))
        return pids.size === 0 && this.#groupExists();
      zombies = pids;
    }
    return this.#groupExists();
  }

  /** True when all are gone, false at the time given (of `performance.now()`). */
  async goneBy(time: number): Promise<boolean> {
    while (this.alive()) {
      const leftMs = time - performance.now();
      if (leftMs <= 0) return false;
      await new Promise((resolve) => setTimeout(resolve, Math.min(leftMs, this.#pauseMs)));
      this.#pauseMs = Math.min(this.#pauseMs * LONGER, LONGEST_PAUSE_MS);
    }
    return true;
  }

  /** Who is left, for people. */
  get pids(): number[] {
    const { entries } = processes();
    const members = this.#members(entries).filter(({ zombie }) => !zombie);
    return [...(this.#isHidden(entries) ? [this.#pid] : []), ...members.map(({ pid }) => pid)];
  }

  /** It has not ended, and is not to be seen: another user's, where each sees only their own (hidepid). */
  #isHidden(entries: readonly ProcessEntry[]): boolean {
    const { exitCode, signalCode } = this.#child;
    return exitCode === null && signalCode === null && !entries.some(({ pid }) => pid === this.#pid);
  }

  #members(entries: readonly ProcessEntry[]): ProcessEntry[] {
    const children = new Map<number, ProcessEntry[]>();
    for (const entry of entries) {
      const siblings = children.get(entry.parent);
      if (siblings) siblings.push(entry);
      else children.set(entry.parent, [entry]);
    }
    const session = entries.find(({ pid }) => pid === process.pid)?.session;
    const members = new Set(entries.filter((entry) => this.#isOurs(entry, session)));
    // A set goes on to those that are added on the way.
    for (const { pid } of members) for (const child of children.get(pid) ?? []) members.add(child);
    for (const { pid, started } of members) this.#known.set(pid, started);
    return [...members];
  }

  #isOurs({ pid, session, group, started }: ProcessEntry, ourSession: number | undefined): boolean {
    if (this.#own && (session === this.#pid || group === this.#pid)) return true;
    if (this.#known.get(pid) === started) return true;
    return !this.#own && this.#mark !== undefined && session === ourSession && startedWith(pid, this.#mark);
  }

  /** Whether there is somebody in the command's own group, seen or not: others than root may not see every process. */
  #groupExists(): boolean {
    if (!this.#own) return false;
    try {
      return process.kill(-this.#pid, 0) && !this.#killed;
    } catch (error) {
      // EPERM: what is there is another user's.
      return (error as NodeJS.ErrnoException).code !== 'ESRCH';
    }
  }
}

function childrenFirst(entries: readonly ProcessEntry[]): ProcessEntry[] {
  const parents = new Map(entries.map(({ pid, parent }) => [pid, parent]));
  const depthOf = ({ pid }: ProcessEntry): number => {
    let depth = 0;
    // A look is not done in one moment: a pid that was used again may make a circle.
    for (let at = parents.get(pid); at !== undefined && depth < entries.length; at = parents.get(at)) depth += 1;
    return depth;
  };
  return entries.toSorted((a, b) => depthOf(b) - depthOf(a));
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // ESRCH: it is gone. EPERM: it belongs to another user, and whoever asks whether it is alive will see that.
  }
}
