import type { TestedBug } from '../test-run.js';

const guard = 'test/system/cli/guard.test.ts';
const loss = 'test/system/cli/loss.test.ts';
const run = 'test/system/cli/run.test.ts';

export const commandLine: readonly TestedBug[] = [
  {
    name: 'a command that ignores SIGTERM is not killed when beats fail',
    edits: [
      {
        file: 'cli/guard.ts',
        find: `    if (await this.#group.goneBy(this.#validUntil - this.#marginMs)) return;
    this.#group.signal('SIGKILL');`,
        replace: `    if (await this.#group.goneBy(this.#validUntil - this.#marginMs)) return;`,
      },
    ],
    foundBy: { file: guard, test: 'a command that ignores SIGTERM while beats fail is killed with its group' },
  },
  {
    name: 'a command is killed when the lock is lost, not before',
    edits: [
      {
        file: 'cli/guard.ts',
        find: 'if (await this.#group.goneBy(this.#validUntil - this.#marginMs)) return;',
        replace: 'if (await this.#group.goneBy(this.#validUntil)) return;',
      },
    ],
    foundBy: { file: guard, test: 'a command that ignores SIGTERM while beats fail is killed with its group' },
  },
  {
    name: 'a command is killed without having been asked to end',
    edits: [
      {
        file: 'cli/guard.ts',
        find: `  async #stop(): Promise<void> {
    this.#group.signal('SIGTERM');`,
        replace: `  async #stop(): Promise<void> {
    this.#group.signal('SIGKILL');`,
      },
    ],
    foundBy: { file: guard, test: 'a command has its whole grace, and ends by itself' },
    sample: true,
  },
  {
    name: 'the first beat that fails stops the command',
    edits: [
      {
        file: 'cli/guard.ts',
        find: "(state === 'jeopardy' && remaining <= this.#graceMs)",
        replace: "state === 'jeopardy'",
      },
    ],
    foundBy: { file: guard, test: 'a lock that is in jeopardy and then safe again costs the command nothing' },
  },
  {
    name: 'the lock of an evicted command goes to the next before the command has ended',
    edits: [{ file: 'cli/guard.ts', find: 'if (this.#group.goneBySync(killAt)) return;', replace: 'return;' }],
    foundBy: { file: loss, test: 'that was evicted has its grace, and nobody else begins before it has ended' },
  },
  {
    name: 'only the command itself is killed, and not what it has started',
    edits: [
      {
        file: 'cli/process-group.ts',
        find: 'process.kill(-this.#pid, signal)',
        replace: 'process.kill(this.#pid, signal)',
      },
    ],
    foundBy: { file: loss, test: 'that was evicted and does not end is killed with its whole group' },
  },
  {
    name: 'one look decides, though processes start others and end meanwhile',
    edits: [
      {
        file: 'cli/process-group.ts',
        find: 'if (whole && mine.every(({ pid }) => ended.has(pid))) return false;',
        replace: 'return false;',
      },
    ],
    foundBy: {
      file: 'test/system/cli/process-group.test.ts',
      test: 'a group whose processes start others and end is not gone while one of them lives',
    },
  },
  {
    name: 'a group that only has zombies is waited for',
    edits: [
      {
        file: 'cli/process-group.ts',
        find: "zombie: state === 'Z' || state === 'X'",
        replace: "zombie: state === 'X'",
      },
    ],
    foundBy: {
      file: 'test/system/cli/process-group.test.ts',
      test: 'a group of zombies is gone, though nobody has collected them',
    },
  },
  {
    name: 'a lock that was lost unnoticed counts as held to the end',
    edits: [
      {
        file: 'cli/run.ts',
        find: 'if (!(await lease.release()))',
        replace: 'if ((await lease.release()) === undefined)',
      },
    ],
    foundBy: { file: loss, test: 'that ended by itself after its lock was lost was not all done under the lock' },
  },
  {
    name: 'SIGHUP is not passed on',
    edits: [{ file: 'cli/signals.ts', find: "'SIGINT', 'SIGHUP', 'SIGQUIT'", replace: "'SIGINT', 'SIGQUIT'" }],
    foundBy: { file: 'test/system/cli/signals.test.ts', test: 'SIGHUP is passed on to the command' },
  },
  {
    name: 'Ctrl-C reaches the command twice',
    edits: [
      {
        file: 'cli/child.ts',
        find: "          if (atTerminal && (signal === 'SIGINT' || signal === 'SIGQUIT')) return;\n",
        replace: '',
      },
    ],
    foundBy: { file: 'test/system/cli/terminal.test.ts', test: 'Ctrl-C reaches the command once' },
  },
  {
    name: 'a command that was ended by a signal is a command that failed',
    edits: [{ file: 'cli/child.ts', find: 'end(code ?? exitOfSignal(signal!))', replace: 'end(code ?? 1)' }],
    foundBy: { file: run, test: 'of "kill -TERM $$" is the command’s, 143' },
  },
  {
    name: 'busy and lost have each other’s exit codes',
    edits: [
      { file: 'cli/options.ts', find: 'const DEFAULT_BUSY_EXIT = 75;', replace: 'const DEFAULT_BUSY_EXIT = 76;' },
      { file: 'cli/failure.ts', find: '  lost: 76,', replace: '  lost: 75,' },
    ],
    foundBy: { file: run, test: 'is 75, or what --busy-exit says, for a lock that is busy' },
  },
  {
    name: 'a shared run inside of a shared run of the same lock is let through',
    edits: [
      {
        file: 'cli/place.ts',
        find: 'if (held.includes(key)) {',
        replace: "if (held.includes(key) && want.kind !== 'shared') {",
      },
    ],
    foundBy: { file: run, test: 'of the same lock is refused through another lock, and in shared mode' },
  },
  {
    name: 'a file that is spelt otherwise is another place',
    edits: [{ file: 'cli/place.ts', find: '`sqlite:${resolve(path)}`', replace: '`sqlite:${path}`' }],
    foundBy: { file: run, test: 'of the same lock is refused through another lock, and in shared mode' },
  },
  {
    name: 'a password is printed with the URL that has it',
    edits: [{ file: 'cli/main.ts', find: 'printable(maskCredentials(message))', replace: 'printable(message)' }],
    foundBy: { file: run, test: 'what it says never has credentials in it' },
  },
];
