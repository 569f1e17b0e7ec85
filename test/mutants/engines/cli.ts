import type { TestedBug } from '../test-run.js';

const guard = 'test/system/cli/guard.test.ts';
const supervisor = 'test/system/cli/supervisor.test.ts';
const loss = 'test/system/cli/loss.test.ts';
const run = 'test/system/cli/run.test.ts';
const list = 'test/system/cli/list.test.ts';
const text = 'test/unit/cli/text.test.ts';

export const commandLine: readonly TestedBug[] = [
  {
    name: 'a command that ignores SIGTERM is not killed when beats fail',
    edits: [
      {
        file: 'cli/guard.ts',
        find: "      family.signal('SIGKILL');\n      if (await family.goneBy(performance.now() + KILL_AGAIN_MS)) return;",
        replace: '      if (await family.goneBy(performance.now() + KILL_AGAIN_MS)) return;',
      },
    ],
    foundBy: { file: guard, test: 'a command that ignores SIGTERM while beats fail is killed with its group' },
  },
  {
    name: 'a command is killed when the lock is lost, not before',
    edits: [
      {
        file: 'cli/guard.ts',
        find: 'void this.#stop(this.#validUntil - this.#marginMs);',
        replace: 'void this.#stop(this.#validUntil);',
      },
    ],
    foundBy: { file: guard, test: 'a command that ignores SIGTERM while beats fail is killed with its group' },
  },
  {
    name: 'a command is killed without having been asked to end',
    edits: [
      {
        file: 'cli/guard.ts',
        find: "family.signal('SIGTERM');",
        replace: "family.signal('SIGKILL');",
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
    edits: [
      {
        file: 'cli/guard.ts',
        find: 'lease.onEvicted(this.#onEvicted);',
        replace: 'lease.onEvicted(async () => void this.#onEvicted());',
      },
    ],
    foundBy: { file: loss, test: 'that was evicted has its grace, and nobody else begins before it has ended' },
  },
  {
    name: 'only the command itself is killed, and not what it has started',
    edits: [
      {
        file: 'cli/family.ts',
        find: '    const members = this.#members(entries).filter(({ zombie, group }) => !zombie && group !== except);',
        replace: '    const members = this.#members(entries).filter(({ group }) => group === -1 && group !== except);',
      },
      {
        file: 'cli/family.ts',
        find: "if (this.#own) send(-this.#pid, 'SIGKILL');",
        replace: "if (this.#own) send(this.#pid, 'SIGKILL');",
      },
    ],
    foundBy: { file: loss, test: 'that was evicted and does not end is killed with its whole group' },
  },
  {
    name: 'what is in another process group is not of the command',
    edits: [
      {
        file: 'cli/family.ts',
        find: 'session === this.#pid || group === this.#pid',
        replace: 'group === this.#pid',
      },
      {
        file: 'cli/family.ts',
        find: 'for (const child of children.get(pid) ?? []) members.add(child);',
        replace: 'children.get(pid);',
      },
    ],
    foundBy: { file: supervisor, test: 'under timeout(1), which makes a group ends with an eviction' },
  },
  {
    name: 'a signal frees the lock as soon as the command itself has ended',
    edits: [
      { file: 'cli/run.ts', find: '  if (!child.asked && !waitAll) return;', replace: '  if (!waitAll) return;' },
    ],
    foundBy: { file: supervisor, test: 'in an orphan in the background ends with a signal' },
  },
  {
    name: 'what could not be stopped is called stopped',
    edits: [{ file: 'cli/guard.ts', find: 'left: this.#left }', replace: 'left: [] }' }],
    foundBy: { file: guard, test: 'what can’t be killed is said' },
  },
  {
    name: 'one look decides, though processes start others and end meanwhile',
    edits: [
      {
        file: 'cli/family.ts',
        find: 'look < (this.#killed ? 2 : MOST_LOOKS);',
        replace: 'look < 1;',
      },
      {
        file: 'cli/family.ts',
        find: '    }\n    return this.#groupExists();',
        replace: '    }\n    return false;',
      },
    ],
    foundBy: {
      file: 'test/system/cli/family.test.ts',
      test: 'a group whose processes start others and end is not gone while one of them lives',
    },
  },
  {
    name: 'a group that only has zombies is waited for',
    edits: [
      {
        file: 'cli/processes.ts',
        find: "zombie: state === 'Z' || state === 'X'",
        replace: "zombie: state === 'X'",
      },
    ],
    foundBy: {
      file: 'test/system/cli/family.test.ts',
      test: 'a group of zombies is gone, though nobody has collected them',
    },
  },
  {
    name: 'a lock that was lost unnoticed counts as held to the end',
    edits: [
      {
        file: 'cli/run.ts',
        find: 'if (!(await Promise.race([lease.release(), goodbye])))',
        replace: 'if ((await Promise.race([lease.release(), goodbye])) === undefined)',
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
        find: 'heard ? { exceptGroupOf: process.pid } : {}',
        replace: 'heard ? {} : {}',
      },
    ],
    foundBy: { file: 'test/system/cli/terminal.test.ts', test: 'Ctrl-C reaches the command once' },
  },
  {
    name: 'what is sent to holdfast alone is taken for the keyboard’s',
    edits: [
      {
        file: 'cli/child.ts',
        find: '(await this.#witness?.heard()) ??',
        replace: 'this.#witness !== undefined ||',
      },
    ],
    foundBy: {
      file: 'test/system/cli/terminal.test.ts',
      test: 'a SIGINT that is sent to holdfast alone reaches the command, once',
    },
  },
  {
    name: 'Ctrl-C does not reach a command in a process group of its own',
    edits: [
      {
        file: 'cli/child.ts',
        find: 'this.family.signal(signal, heard ?',
        replace: 'if (!heard) this.family.signal(signal, heard ?',
      },
    ],
    foundBy: {
      file: 'test/system/cli/terminal.test.ts',
      test: 'Ctrl-C reaches a command that makes a process group of its own',
    },
  },
  {
    name: 'what a signal has ended without us has ended by itself',
    edits: [{ file: 'cli/child.ts', find: 'if (this.asked || !(signal || hungUp)) return;', replace: 'return;' }],
    foundBy: {
      file: 'test/system/cli/terminal.test.ts',
      test: 'Ctrl-C that only a part of the command hears leaves nobody at work',
    },
  },
  {
    name: 'a terminal that is closed is no reason to ask what is left',
    edits: [{ file: 'cli/child.ts', find: '!(signal || hungUp)', replace: '!(signal || (hungUp && false))' }],
    foundBy: {
      file: 'test/system/cli/terminal.test.ts',
      test: 'a terminal that is closed that only a part of the command hears leaves nobody at work',
    },
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
        file: 'cli/nesting.ts',
        find: 'if (held.some((outer) => outer.key === key)) {',
        replace: "if (held.some((outer) => outer.key === key) && want.kind !== 'shared') {",
      },
    ],
    foundBy: { file: run, test: 'of the same lock is refused through another lock, and in shared mode' },
  },
  {
    name: 'what a command started is inside of its run for ever',
    edits: [{ file: 'cli/nesting.ts', find: '.filter(({ pid, started }) => startOf(pid) === started)', replace: '' }],
    foundBy: { file: run, test: 'that has ended is one no more' },
  },
  {
    name: 'a file that is spelt otherwise is another place',
    edits: [{ file: 'cli/nesting.ts', find: '`sqlite:${resolve(path)}`', replace: '`sqlite:${path}`' }],
    foundBy: { file: run, test: 'of the same lock is refused through another lock, and in shared mode' },
  },
  {
    name: 'a password is printed with the URL that has it',
    edits: [
      { file: 'cli/main.ts', find: 'printableLines(maskCredentials(message))', replace: 'printableLines(message)' },
    ],
    foundBy: { file: run, test: 'what it says never has credentials in it' },
  },
  {
    name: 'the id of a claim drives the terminal of who looks',
    edits: [
      { file: 'cli/text.ts', find: 'rows.map((row) => row.map(printable))', replace: 'rows.map((row) => [...row])' },
    ],
    foundBy: { file: list, test: 'nothing that stands in the store drives the terminal of who looks' },
  },
  {
    name: 'JSON drives a terminal with controls beyond ASCII',
    edits: [
      {
        file: 'cli/text.ts',
        find: "text.replace(UNPRINTABLE, (character) => `\\\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)",
        replace: 'text',
      },
    ],
    foundBy: { file: text, test: 'JSON, which still says the same' },
  },
  {
    name: 'more claims than a function may have arguments can’t be listed',
    edits: [
      {
        file: 'cli/text.ts',
        find: `  for (const row of cells)
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, cell.length);`,
        replace: `  for (const column of cells[0]!.keys()) widths[column] = Math.max(...cells.map((row) => row[column]!.length));`,
      },
    ],
    foundBy: { file: text, test: 'a table has as many rows as there are claims' },
  },
];
