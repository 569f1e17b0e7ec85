/**
 * Every error that Holdfast throws, each with a stable `code`. Two that only databases give cause for are in `sql/errors.ts`: who
 * brings an engine without one has no bytes of them.
 *
 * A message says what happened, to which lock, who holds it where that is known, and what to do. It never carries a
 * URL, a password or a client's own error object: those are redacted into `cause`. And it is one line of printable text,
 * whoever wrote its parts: names, labels and reasons are users' words, and a server may say anything.
 */

import { brand, isOfBrand } from './one-library.js';

/** A statement of ours, for people to run. It stands below the message as it is: its lines are its own. */
interface Remedy {
  readonly statement?: string | undefined;
}

export class HoldfastError extends Error {
  static {
    brand(this, 'HoldfastError');
  }

  /** Also for those of another copy of this library: its CommonJS form, or one that another package brought. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return isOfBrand(this, value);
  }

  readonly code: string;

  constructor(code: string, message: string, { statement, ...options }: ErrorOptions & Remedy = {}) {
    super(printable(message) + (statement === undefined ? '' : `\n${statement}`), options);
    this.code = code;
    this.name = new.target.name;
  }

  /** For logs. JSON has no bigint, so tokens are written as text. */
  toJSON(): object {
    const fields = Object.entries(this).concat([['message', this.message]]);
    const text = JSON.stringify(Object.fromEntries(fields), (_key, value: unknown) =>
      typeof value === 'bigint' ? `${value}` : value,
    );
    return JSON.parse(text) as object;
  }
}

/** Who stood in the way when an acquire ran out of time. */
export interface Blocker {
  readonly label: string;
  readonly session: string;
  readonly token?: bigint | undefined;
  /** Epoch milliseconds by the engine's clock. */
  readonly since: number;
}

/** The lock was busy for the whole timeout. The engine was asked and answered; an unreachable one gives EngineError. */
export class AcquireTimeoutError extends HoldfastError {
  static {
    brand(this, 'AcquireTimeoutError');
  }

  readonly lock: string;
  readonly timeoutMs: number;
  /** The first holder in line, where the engine can list its lines. */
  readonly holder: Blocker | undefined;
  /** How many claims stood before ours, where the engine can list its lines. */
  readonly place: number | undefined;
  /** Whether the holder is this very process: only `run` is re-entrant, and only inside of it. */
  readonly heldHere: boolean;

  constructor(
    lock: string,
    timeoutMs: number,
    seen: { holder?: Blocker | undefined; place?: number | undefined; heldHere?: boolean } = {},
  ) {
    const waited = timeoutMs === 0 ? 'at the first try' : `within ${timeoutMs} ms`;
    const { heldHere = false } = seen;
    const label = seen.holder && shortened(seen.holder.label);
    const holder = label === undefined ? '' : `; held by ${heldHere ? `this very process (${label})` : label}`;
    const place = seen.place === undefined ? '' : `, ${seen.place} before us in line`;
    super(
      'HOLDFAST_TIMEOUT',
      `${quote(lock)} was not free ${waited}${holder}${place}. Wait longer (timeout), or look at it with inspect().`,
    );
    this.lock = lock;
    this.timeoutMs = timeoutMs;
    this.holder = seen.holder;
    this.place = seen.place;
    this.heldHere = heldHere;
  }
}

/**
 * Why a lease ended before its owner released it.
 * - `expired`: our validity ended, because no beat succeeded in time
 * - `session`: the engine no longer knows our session, or no longer has this claim
 * - `connection`: the connection that carried the lock is gone
 * - `evicted`: an operator took it away with `evict`
 * - `maxHold`: it was held for as long as `maxHold` allowed
 * - `released`: it was released already, or its Holdfast was closed
 */
export type LossReason = 'expired' | 'session' | 'connection' | 'evicted' | 'maxHold' | 'released';

export interface Loss {
  readonly reason: LossReason;
  /** The operator's words for an eviction, the client's for a lost connection. */
  readonly detail?: string | undefined;
}

const LOSS_TEXT: Record<LossReason, string> = {
  expired: 'no beat reached the engine in time, so its validity ended',
  session: 'the engine no longer has our claim',
  connection: 'the connection that carried it is gone',
  evicted: 'it was evicted',
  maxHold: 'it was held for as long as maxHold allows',
  released: 'it has been released',
};

export class LeaseLostError extends HoldfastError {
  static {
    brand(this, 'LeaseLostError');
  }

  readonly lock: string;
  readonly reason: LossReason;
  /** The operator's words for an eviction. */
  readonly detail: string | undefined;
  readonly token: bigint | undefined;

  constructor(lock: string, loss: Loss, token?: bigint) {
    const detail = wordsOf(loss.detail);
    super(
      'HOLDFAST_LOST',
      `The lease on ${quote(lock)} is over: ${LOSS_TEXT[loss.reason]}${detail ? ` (${shortened(detail)})` : ''}. Another may hold it now: stop, and do not write.`,
    );
    this.lock = lock;
    this.reason = loss.reason;
    this.detail = detail;
    this.token = token;
  }
}

/** A newer token has been seen by this register or fence: the caller's lease was overtaken. Nothing was written. */
export class StaleTokenError extends HoldfastError {
  static {
    brand(this, 'StaleTokenError');
  }

  readonly lock: string;
  readonly token: bigint;
  /** The newest token that has been presented. */
  readonly newest: bigint;

  constructor(lock: string, token: bigint, newest: bigint) {
    super(
      'HOLDFAST_STALE_TOKEN',
      `Token ${token} is stale for ${quote(lock)}: ${newest} has been presented since. Nothing was read or written; acquire again.`,
    );
    this.lock = lock;
    this.token = token;
    this.newest = newest;
  }
}

/** Waiting would never end: the wait closes a cycle inside this process, or upgrades a lock that it already shares. */
export class DeadlockError extends HoldfastError {
  static {
    brand(this, 'DeadlockError');
  }

  /** The names of the locks on the cycle, beginning with the one that was asked for. */
  readonly cycle: readonly string[];

  constructor(message: string, cycle: readonly string[]) {
    super('HOLDFAST_DEADLOCK', message);
    this.cycle = cycle;
  }
}

/** The line exists with another capacity: somebody uses this semaphore with another number of permits. */
export class CapacityError extends HoldfastError {
  static {
    brand(this, 'CapacityError');
  }

  readonly lock: string;
  readonly expected: number;
  readonly actual: number;

  /** @param actual as it stands in the store: a number, if everybody has behaved. */
  constructor(lock: string, expected: number, actual: unknown) {
    const found = Number(actual);
    super(
      'HOLDFAST_CAPACITY',
      `Semaphore ${quote(lock)} is in use with ${found} permits, not ${expected}. Use one number everywhere; ` +
        'a new one takes effect when nobody holds it or waits for it.',
    );
    this.lock = lock;
    this.expected = expected;
    this.actual = found;
  }
}

/** The engine can't do this. Thrown when the object is made, never in the middle of the work. */
export class UnsupportedError extends HoldfastError {
  static {
    brand(this, 'UnsupportedError');
  }

  constructor(message: string) {
    super('HOLDFAST_UNSUPPORTED', message);
  }
}

/** A mistake in what was passed to Holdfast: the message says which value and what is allowed. */
export class ConfigError extends HoldfastError {
  static {
    brand(this, 'ConfigError');
  }

  constructor(message: string, options?: ErrorOptions) {
    super('HOLDFAST_CONFIG', message, options);
  }
}

interface EngineErrorOptions extends Remedy {
  readonly retryable?: boolean;
  readonly retryAfterMs?: number | undefined;
  readonly engine?: string | undefined;
  readonly lock?: string | undefined;
  readonly cause?: unknown;
}

/** The engine could not be asked, or answered with an error of its own. */
export class EngineError extends HoldfastError {
  static {
    brand(this, 'EngineError');
  }

  /** False: trying again can't help (credentials, rights, a protocol mismatch). */
  readonly retryable: boolean;
  /** When to try again, where the engine has said so: it grants nothing until then, and nobody is in the way. */
  readonly retryAfterMs: number | undefined;
  /** What and where the engine is, without credentials: `redis at localhost:6379`. */
  readonly engine: string | undefined;
  /** Where it was asked about one. */
  readonly lock: string | undefined;

  constructor(
    message: string,
    { retryable = true, retryAfterMs, engine, lock, cause, statement }: EngineErrorOptions = {},
  ) {
    super('HOLDFAST_ENGINE', maskCredentials(message), {
      statement,
      ...(cause !== undefined && { cause: redacted(cause) }),
    });
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs;
    this.engine = engine;
    this.lock = lock;
  }
}

/** The Holdfast was closed, or is closing and the call did not come from work that may still end. */
export class ClosedError extends HoldfastError {
  static {
    brand(this, 'ClosedError');
  }

  constructor() {
    super('HOLDFAST_CLOSED', 'This Holdfast has been closed: make a new one.');
  }
}

/** Where something went wrong. */
export interface Whereabouts {
  /** What and where the engine is, for people; undefined for one of somebody else's making that does not say. */
  readonly engine: string | undefined;
  readonly lock?: string | undefined;
}

/** An engine's own error, for one of those who asked: it names the engine and the lock. Others are passed on as they are. */
export function named(error: HoldfastError, { engine, lock }: Whereabouts): HoldfastError {
  // Those of a class of its own say all that there is to say, and those that are named are somebody's already.
  if (!(error instanceof EngineError) || Object.getPrototypeOf(error) !== EngineError.prototype) return error;
  if (engine === undefined || (error.engine !== undefined && error.lock === lock)) return error;
  const { retryable, retryAfterMs, message, cause = error } = error;
  const [said, ...statement] = message.split('\n');
  return new EngineError(`${about({ engine, lock })}${said}`, {
    ...{ retryable, retryAfterMs, engine, lock, cause },
    statement: statement.length > 0 ? statement.join('\n') : undefined,
  });
}

/** What the engine said of itself comes first: it may be all that there is to know. */
export function unreachable(trouble: HoldfastError | undefined, where: Whereabouts): HoldfastError {
  const why = 'The engine could not be asked in time; the lock itself may be free.';
  if (!trouble) return new EngineError(about(where) + why, where);
  const message = isSilence(trouble) ? `${why} Last: ${trouble.message}` : `${sentence(trouble.message)} ${why}`;
  return new EngineError(about(where) + message, { ...where, cause: trouble });
}

function about({ engine, lock }: Whereabouts): string {
  const place = [...(lock === undefined ? [] : [quote(lock)]), ...(engine === undefined ? [] : [engine])].join(' on ');
  return place && `${place}: `;
}

/** Others' words end in a full stop, or do not. */
export function sentence(words: string): string {
  return /[.!?…]$/.test(words) ? words : `${words}.`;
}

/**
 * Where a call was made. V8 finds those who await a promise when it rejects, but not who has called and does not await it
 * (`.catch(…)`): that must be noted beforehand. It takes 2 µs, half of an acquire in memory, and is put into words only if it is needed.
 */
export class Caller {
  declare readonly stack: unknown;

  constructor() {
    Error.captureStackTrace(this, Caller);
  }
}

/**
 * The stack of an error that was made in a timer, or by another's call, names nobody who could be looked for. It gets the frames of
 * the caller, or, where that was not noted, of those who await the async function that this is called in.
 */
export function fromHere(error: unknown, caller?: Caller): unknown {
  if (!(error instanceof HoldfastError)) return error;
  // One of them may be told to many.
  const own = error instanceof ClosedError ? new ClosedError() : error;
  if (!caller) {
    Error.captureStackTrace(own, fromHere);
    return own;
  }
  // When somebody reads it: to put frames into words takes longer than all of a timeout.
  Object.defineProperty(own, 'stack', {
    configurable: true,
    get: () => stackOf(own, caller),
    set: (value: unknown) => {
      Object.defineProperty(own, 'stack', { value, configurable: true, writable: true });
    },
  });
  return own;
}

function stackOf({ name, message }: Error, { stack }: Caller): string {
  // Not a text where somebody has replaced Error.prepareStackTrace, and without frames where Error.stackTraceLimit is 0.
  const [, frames = ''] = /(\n +at .*)/s.exec(String(stack)) ?? [];
  return `${name}: ${message}${frames}`;
}

/** What a call of the public API asks of others, with its caller noted. To be called before the first `await`. */
export async function calling<T>(ask: () => T | Promise<T>): Promise<T> {
  const caller = new Caller();
  try {
    return await ask();
  } catch (error) {
    throw fromHere(error, caller);
  }
}

const silences = new WeakSet<HoldfastError>();

/** The engine did not answer in time: it may be slow, or gone, or only this answer may be lost. */
export function silence(doing: string): EngineError {
  const error = new EngineError(`The engine did not answer to ${doing} in time.`);
  silences.add(error);
  return error;
}

/** Whether nothing was heard, rather than an error. */
export function isSilence(error: HoldfastError): boolean {
  return silences.has(error);
}

/** A lock's name as it may stand in a message: names are users' data, quoting keeps one from forging a log line. */
export function quote(name: string): string {
  return printable(JSON.stringify(name));
}

/** Without what could forge a log line, drive a terminal, or turn the reading direction of what follows. */
function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, escaped);
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** What stands in a store as text may be something else: whoever reads it must not fail over it. */
function wordsOf(said: unknown): string | undefined {
  return typeof said === 'string' || typeof said === 'number' ? String(said) : undefined;
}

const LONGEST_WORDS = 1_024;

/** Others' words in a message: enough of them to know what they say. */
function shortened(words: string): string {
  return words.length > LONGEST_WORDS ? `${words.slice(0, LONGEST_WORDS)}…` : words;
}

/** Whatever an adapter threw, as an error of ours. */
export function asHoldfastError(thrown: unknown, doing: string): HoldfastError {
  if (thrown instanceof HoldfastError) return thrown;
  return new EngineError(`${doing} failed: ${told(thrown)}`, { cause: thrown });
}

/** What an error says of itself. Node's own for a refused connection has a code and an empty message. */
function told(thrown: unknown): string {
  if (!(thrown instanceof Error)) return 'unknown error';
  const { code } = thrown as { code?: unknown };
  return thrown.message || (typeof code === 'string' ? code : thrown.name);
}

/**
 * Client libraries hang whole commands, options and URLs on their errors (ioredis: the command with its arguments).
 * Only name, message, code and stack survive, with credentials in URLs masked.
 */
function redacted(thrown: unknown): unknown {
  if (thrown instanceof HoldfastError) return thrown;
  if (!(thrown instanceof Error)) return new Error(harmless(String(thrown)));
  const { name, message, stack } = thrown;
  const copy = new Error(harmless(message));
  copy.name = name;
  // The lines of a stack are frames, but for those of the message.
  if (stack)
    copy.stack = stack
      .replace(message, () => copy.message)
      .split('\n')
      .map(harmless)
      .join('\n');
  const code = (thrown as { code?: unknown }).code;
  if (typeof code === 'string' || typeof code === 'number') Object.assign(copy, { code });
  return copy;
}

function harmless(text: string): string {
  return printable(maskCredentials(text));
}

/**
 * In each word from `://` up to the last '@': whoever forgot to encode a password has '/', '?' and '@' in it. Not in `file:///`.
 * Word by word, because one expression for all of it takes time by the square of a long one.
 */
function maskCredentials(text: string): string {
  return text.replace(/\S+/g, (word) => {
    const [from, to] = [word.search(/:\/\/(?!\/)/), word.lastIndexOf('@')];
    return from === -1 || to < from + 3 ? word : `${word.slice(0, from)}://***${word.slice(to)}`;
  });
}
