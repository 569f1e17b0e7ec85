#!/usr/bin/env node
/** The command line. Says what it has to say on one line of stderr, and a statement to run below it; stdout belongs to listings and to the child. */
import { readFileSync } from 'node:fs';
import { isatty } from 'node:tty';
import { asFailure, type Failure, usage } from './failure.js';
import { helpFor } from './help.js';
import { evict, inspect, ls, type Printout } from './list.js';
import { parseList, parseRun } from './options.js';
import { run } from './run.js';
import { schema } from './schema.js';
import { json, maskCredentials, printable, printableLines } from './text.js';

type Command = (args: readonly string[]) => Promise<number>;

const COMMANDS: Readonly<Record<string, Command>> = {
  run: (args) => run(parseRun(args)),
  ls: async (args) => print(await ls(parseList(args, { operands: [0, 1], synopsis: 'ls [prefix]' }))),
  inspect: async (args) => print(await inspect(parseList(args, { operands: [1, 1], synopsis: 'inspect <name>' }))),
  evict: async (args) => {
    const synopsis = 'evict <name> <claim-id> [--reason text]';
    return print(await evict(parseList(args, { operands: [2, 2], synopsis, reason: true })));
  },
  schema: async (args) => print(await schema(parseList(args, { operands: [1, 1], synopsis: 'schema print|apply' }))),
  help: async ([topic]) => print({ exit: 0, text: helpFor(topic) }),
};

async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = commandFirst(args);
  if (name === undefined) throw usage('a command is missing; see holdfast --help');
  if (name === '--version' || name === '-V') return print({ exit: 0, text: `${version()}\n` });
  if (name === '--help' || name === '-h') return print({ exit: 0, text: helpFor(rest[0]) });
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command && name.startsWith('-'))
    throw usage(`options stand behind the command, as in: holdfast ls ${JSON.stringify(name)}; see holdfast --help`);
  if (!command) throw usage(`there is no command ${JSON.stringify(name)}; see holdfast --help`);
  if (own(rest).some((arg) => arg === '--help' || arg === '-h')) return print({ exit: 0, text: helpFor(name) });
  return command(rest);
}

/** The options that all commands have may also stand before the command. */
function commandFirst(args: readonly string[]): readonly string[] {
  let at = 0;
  while (args[at] === '--json' || args[at] === '--url' || args[at]?.startsWith('--url='))
    at += args[at] === '--url' ? 2 : 1;
  return args.slice(at, at + 1).concat(args.slice(0, at), args.slice(at + 1));
}

/** Arguments that are ours: behind -- they are the child's. */
function own(args: readonly string[]): readonly string[] {
  const dashes = args.indexOf('--');
  return dashes === -1 ? args : args.slice(0, dashes);
}

function print({ exit, text }: Printout): number {
  process.stdout.write(text);
  return exit;
}

function version(): string {
  const file = new URL('../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

function report({ exit, code, message }: Failure, asJson: boolean): void {
  const text = printableLines(maskCredentials(message));
  process.stderr.write(asJson ? json({ error: code, exit, message: text }) : `holdfast: ${text}\n`);
}

// Node writes warnings over several lines, one of them about its SQLite being new; only ours are for users.
process.removeAllListeners('warning');
process.on('warning', ({ name, message }) => {
  if (name === 'HoldfastWarning') process.stderr.write(`holdfast: ${printable(message)}\n`);
});
// Whoever reads a listing may stop early, as head(1) does; that is no error.
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});

const terminals = [0, 1, 2].filter((descriptor) => isatty(descriptor));
const args = process.argv.slice(2);
let exit: number;
try {
  exit = await main(args);
} catch (error) {
  const failure = asFailure(error);
  report(failure, own(args).includes('--json'));
  exit = failure.exit;
}
// Nothing that an engine's client has left open may keep us; what was printed must be out first.
process.stdout.write('', () => end(exit));

function end(code: number): void {
  // Node.js puts terminals in order when it ends, and aborts, with a core, if one of them has been closed. Who is hung up may say so.
  if (terminals.some((terminal) => !isatty(terminal))) {
    process.removeAllListeners('SIGHUP');
    process.kill(process.pid, 'SIGHUP');
  }
  process.exit(code);
}
