/** The command, from its start to its end, under a lease. */
import { type ChildProcess, spawn } from 'node:child_process';
import { isatty } from 'node:tty';
import { EXIT, Failure } from './failure.js';
import { ProcessGroup } from './process-group.js';
import { exitOfSignal, type Signal } from './signals.js';
import { quote } from './text.js';

export interface Child {
  readonly group: ProcessGroup;
  /** The exit code that a shell would give. */
  readonly ended: Promise<number>;
  readonly forward: (signal: Signal) => void;
}

/** With stdin, stdout and stderr of ours. Rejects with a Failure (126, 127) if it can't be started. */
export function startChild(
  [file, ...args]: readonly [string, ...string[]],
  env: Readonly<Record<string, string | undefined>>,
): Promise<Child> {
  // Away from its terminal's foreground group a command could neither read from it nor hear Ctrl-C.
  // Not process.stdin: to open that stream here would take bytes, or blocking reads, from the child.
  const atTerminal = isatty(0);
  const own = !atTerminal && process.platform !== 'win32';
  return new Promise((resolve, reject) => {
    let child: ChildProcess;
    try {
      child = spawn(file, args, { stdio: 'inherit', env, detached: own });
    } catch (error) {
      // Node throws some of the system's errors (E2BIG) and emits the others.
      return reject(cantStart(file, error as NodeJS.ErrnoException));
    }
    const ended = new Promise<number>((end) => {
      child.once('exit', (code, signal) => end(code ?? exitOfSignal(signal!)));
    });
    child.once('error', (error) => reject(cantStart(file, error)));
    child.once('spawn', () => {
      resolve({
        group: new ProcessGroup(child, child.pid!, own),
        ended,
        forward: (signal) => {
          // These two come from the keyboard, and the terminal has sent them to the child itself.
          if (atTerminal && (signal === 'SIGINT' || signal === 'SIGQUIT')) return;
          child.kill(signal);
        },
      });
    });
  });
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
