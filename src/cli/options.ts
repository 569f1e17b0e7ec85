/** What was asked for, read from the arguments. Every mistake is a usage error that says what is allowed. */
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { usage } from './failure.js';

export interface CommonOptions {
  readonly url: string | undefined;
  readonly json: boolean;
}

export interface RunOptions extends CommonOptions {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  /** Undefined: wait for ever; 0: do not wait. */
  readonly waitMs: number | undefined;
  readonly want: WantedLock;
  readonly ttlMs: number;
  readonly graceMs: number;
  readonly busyExit: number;
  /** Keep the lock until all that the command started has ended. */
  readonly waitAll: boolean;
  /** As under nohup. */
  readonly ignoreHangup: boolean;
  /** The command does not inherit HOLDFAST_URL. */
  readonly hideUrl: boolean;
}

export type WantedLock =
  | { readonly kind: 'exclusive' }
  | { readonly kind: 'shared' }
  | { readonly kind: 'semaphore'; readonly permits: number; readonly of: number };

type Specs = NonNullable<ParseArgsConfig['options']>;
type Values = Readonly<Record<string, string | boolean | undefined>>;

const COMMON: Specs = { url: { type: 'string' }, json: { type: 'boolean' } };

const RUN: Specs = {
  wait: { type: 'string', short: 'w' },
  'no-wait': { type: 'boolean', short: 'n' },
  shared: { type: 'boolean', short: 's' },
  permits: { type: 'string' },
  of: { type: 'string' },
  ttl: { type: 'string' },
  grace: { type: 'string' },
  'busy-exit': { type: 'string' },
  'wait-all': { type: 'boolean' },
  'no-hup': { type: 'boolean' },
  'hide-url': { type: 'boolean' },
};

const DEFAULT_TTL_MS = 10_000;
const DEFAULT_BUSY_EXIT = 75;
/** Above what Holdfast itself allows there is no number of permits. */
const MOST_PERMITS = 2 ** 31 - 1;

export function parseRun(args: readonly string[]): RunOptions {
  const dashes = args.indexOf('--');
  const { values, positionals } = parse(dashes === -1 ? args : args.slice(0, dashes), RUN);
  const [name, ...rest] = positionals;
  if (name === undefined) throw usage('run needs the name of a lock: holdfast run <name> -- command');
  if (dashes === -1 || rest.length > 0)
    throw usage('the command goes behind --, as in: holdfast run <name> -- command');
  const [file, ...more] = args.slice(dashes + 1);
  if (!file) throw usage('there is no command behind --');
  const ttlMs = optional(values['ttl'], (text) => duration(text, '--ttl')) ?? DEFAULT_TTL_MS;
  return {
    ...common(values),
    name,
    command: [file, ...more],
    waitMs: wait(values),
    want: want(values),
    ttlMs,
    graceMs: grace(values, ttlMs),
    busyExit: optional(values['busy-exit'], (text) => whole(text, '--busy-exit', 0, 255)) ?? DEFAULT_BUSY_EXIT,
    waitAll: values['wait-all'] === true,
    ignoreHangup: values['no-hup'] === true,
    hideUrl: values['hide-url'] === true,
  };
}

export interface ListOptions extends CommonOptions {
  readonly operands: readonly string[];
  readonly reason: string | undefined;
}

/** The commands that look: `ls`, `inspect` and `evict`. */
export function parseList(
  args: readonly string[],
  expects: { operands: readonly [least: number, most: number]; synopsis: string; reason?: boolean },
): ListOptions {
  const { values, positionals } = parse(args, expects.reason ? { reason: { type: 'string' } } : {});
  const [least, most] = expects.operands;
  if (positionals.length < least || positionals.length > most) throw usage(`it is: holdfast ${expects.synopsis}`);
  return { ...common(values), operands: positionals, reason: optional(values['reason'], (text) => text) };
}

function parse(args: readonly string[], specs: Specs): { values: Values; positionals: string[] } {
  try {
    const options = { ...COMMON, ...specs };
    const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
    return { values: values as Values, positionals };
  } catch (error) {
    // Node's message goes on to explain how '--' works, which is of no use for an unknown option.
    throw usage((error as Error).message.split(/\. |\n/)[0]!);
  }
}

function common(values: Values): CommonOptions {
  return { url: optional(values['url'], (text) => text), json: values['json'] === true };
}

function wait(values: Values): number | undefined {
  const waitMs = optional(values['wait'], (text) => duration(text, '--wait'));
  if (!values['no-wait']) return waitMs;
  if (waitMs !== undefined) throw usage('-w waits and -n does not: use one of them');
  return 0;
}

function want(values: Values): WantedLock {
  const of = optional(values['of'], (text) => whole(text, '--of', 1, MOST_PERMITS));
  const permits = optional(values['permits'], (text) => whole(text, '--permits', 1, of ?? MOST_PERMITS));
  if (values['shared']) {
    if (of !== undefined || permits !== undefined)
      throw usage('-s is for read locks, --permits and --of for semaphores');
    return { kind: 'shared' };
  }
  if (of === undefined && permits === undefined) return { kind: 'exclusive' };
  if (of === undefined) throw usage('--permits needs --of, the number of permits that there are in all');
  return { kind: 'semaphore', permits: permits ?? 1, of };
}

/**
 * By default a fifth of the ttl. A server that hangs is only noticed when two thirds of the ttl are over, so a command
 * would not get more than that in any case; more than half is a misunderstanding.
 */
function grace(values: Values, ttlMs: number): number {
  const graceMs = optional(values['grace'], (text) => duration(text, '--grace'));
  if (graceMs !== undefined && graceMs > ttlMs / 2) throw usage('--grace must be at most half of --ttl');
  return graceMs ?? ttlMs / 5;
}

function optional<T>(value: string | boolean | undefined, read: (text: string) => T): T | undefined {
  return typeof value === 'string' ? read(value) : undefined;
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const LONGEST_MS = 366 * 86_400_000;

function duration(text: string, what: string): number {
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) ?? [];
  const ms = Number(number) * (UNIT_MS[unit ?? ''] ?? Number.NaN);
  if (ms <= LONGEST_MS) return ms;
  throw usage(`${what} must be a duration like 250ms, 10s, 5m, 1h or 7d; got ${JSON.stringify(text)}`);
}

function whole(text: string, what: string, least: number, most: number): number {
  const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (number >= least && number <= most) return number;
  throw usage(`${what} must be a whole number from ${least} to ${most}; got ${JSON.stringify(text)}`);
}
