/** The command, from its start to its end, under a lease. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { EXIT, Failure } from './failure.js';
import { Family } from './family.js';
import { endsByDefault, exitOfSignal, type Signal } from './signals.js';
import { quote } from './text.js';
import { Witness } from './witness.js';

export interface Child {
  readonly family: Family;
  /** The exit code that a shell would give. */
  readonly ended: Promise<number>;
  readonly forward: (signal: Signal) => void;
  /** Whether it was asked to end: by a signal that was passed on, by one that it has ended of, or by the end of its terminal. */
  readonly asked: boolean;
}

/** With stdin, stdout and stderr of ours. Rejects with a Failure (126, 127) if it can't be started. */
export function startChild(
  [file, ...args]: readonly [string, ...string[]],
  env: Readonly<Record<string, string | undefined>>,
  { ownSession, mark }: { ownSession: boolean; mark: string },
): Promise<Child> {
  const witness = ownSession || process.platform === 'win32' ? undefined : new Witness();
  return new Promise((resolve, reject) => {
    let child: ChildProcess;
    try {
      child = spawn(file, args, { stdio: 'inherit', env, detached: ownSession });
    } catch (error) {
      // Node throws some of the system's errors (E2BIG) and emits the others.
      return reject(cantStart(file, error as NodeJS.ErrnoException));
    }
    const ended = new Promise<number>((end) => {
      child.once('exit', (code, signal) => end(code ?? exitOfSignal(signal!)));
    });
    child.once('error', (error) => reject(cantStart(file, error)));
    child.once('spawn', () => resolve(new RunningChild(child, new Family(child, ownSession, mark), ended, witness)));
  });
}

class RunningChild implements Child {
  readonly family: Family;
  readonly ended: Promise<number>;
  readonly #witness: Witness | undefined;
  asked = false;

  /** @param witness where the command shares our process group. */
  constructor(child: ChildProcess, family: Family, ended: Promise<number>, witness: Witness | undefined) {
    this.family = family;
    this.ended = ended;
    this.#witness = witness;
    child.once('exit', (_code, signal) => this.#hasEnded(signal));
  }

  /**
   * A signal may reach the command, or a part of it, and not us: where a shell in there has job control, the terminal takes that one for
   * the foreground. What it leaves is asked to end as if we had passed the signal on.
   */
  #hasEnded(signal: NodeJS.Signals | null): void {
    const hungUp = this.#witness !== undefined && !hasTerminal();
    if (this.asked || !(signal || hungUp)) return;
    this.asked = true;
    this.family.signal(signal && !endsByDefault(signal) ? 'SIGTERM' : (signal ?? 'SIGHUP'));
  }

  readonly forward = (signal: Signal): void => {
    // What others in the family do not know would end them: such a signal is meant for the command alone.
    if (!endsByDefault(signal)) return this.family.tell(signal);
    this.asked = true;
    // The keyboard reaches our process group alone. What has made one of its own, as timeout(1) does, hears it from us.
    void this.#hasHeard(signal).then((heard) => {
      this.family.signal(signal, heard ? { exceptGroupOf: process.pid } : {});
    });
  };

  /** What the keyboard sends reaches the command without us. */
  async #hasHeard(signal: Signal): Promise<boolean> {
    if (signal !== 'SIGINT' && signal !== 'SIGQUIT') return false;
    return (await this.#witness?.heard()) ?? process.platform === 'win32';
  }
}

/**
 * With a terminal, a command of another session could neither read from it, nor ask for a password, nor hear Ctrl-C and
 * Ctrl-Z. Not asked of stdin: where that is a pipe, /dev/tty is still there.
 */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}

/** As env(1) has it. */
function cantStart(file: string, error: NodeJS.ErrnoException): Failure {
  if (error.code === 'ENOENT')
    return new Failure(EXIT.notFound, 'HOLDFAST_COMMAND', `${quote(file)}: command not found`);
  return new Failure(
    EXIT.notExecutable,
    'HOLDFAST_COMMAND',
    `${quote(file)} can't be run (${error.code ?? 'unknown'})`,
  );
}
