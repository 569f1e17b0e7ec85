/**
 * Every error that Holdfast throws, each with a stable `code`.
 *
 * A message says what happened, to which lock, who holds it where that is known, and what to do. It never carries a
 * URL, a password or a client's own error object: those are redacted into `cause`.
 */

export class HoldfastError extends Error {
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
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
  readonly lock: string;
  readonly timeoutMs: number;
  /** The first holder in line, where the engine can list its lines. */
  readonly holder: Blocker | undefined;
  /** How many claims stood before ours, where the engine can list its lines. */
  readonly place: number | undefined;

  constructor(
    lock: string,
    timeoutMs: number,
    seen: { holder?: Blocker | undefined; place?: number | undefined } = {},
  ) {
    const waited = timeoutMs === 0 ? 'at the first try' : `within ${timeoutMs} ms`;
    const holder = seen.holder ? `; held by ${printable(seen.holder.label)}` : '';
    const place = seen.place === undefined ? '' : `, ${seen.place} before us in line`;
    super(
      'HOLDFAST_TIMEOUT',
      `${quote(lock)} was not free ${waited}${holder}${place}. Wait longer (timeout), or look at it with inspect().`,
    );
    this.lock = lock;
    this.timeoutMs = timeoutMs;
    this.holder = seen.holder;
    this.place = seen.place;
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
  readonly lock: string;
  readonly reason: LossReason;
  /** The operator's words for an eviction. */
  readonly detail: string | undefined;
  readonly token: bigint | undefined;

  constructor(lock: string, loss: Loss, token?: bigint) {
    const detail = loss.detail ? ` (${printable(loss.detail)})` : '';
    super(
      'HOLDFAST_LOST',
      `The lease on ${quote(lock)} is over: ${LOSS_TEXT[loss.reason]}${detail}. Another may hold it now: stop, and do not write.`,
    );
    this.lock = lock;
    this.reason = loss.reason;
    this.detail = loss.detail;
    this.token = token;
  }
}

/** A newer token has been seen by this register or fence: the caller's lease was overtaken. Nothing was written. */
export class StaleTokenError extends HoldfastError {
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
  /** The names of the locks on the cycle, beginning with the one that was asked for. */
  readonly cycle: readonly string[];

  constructor(message: string, cycle: readonly string[]) {
    super('HOLDFAST_DEADLOCK', message);
    this.cycle = cycle;
  }
}

/** The line exists with another capacity: somebody uses this semaphore with another number of permits. */
export class CapacityError extends HoldfastError {
  readonly lock: string;
  readonly expected: number;
  readonly actual: number;

  constructor(lock: string, expected: number, actual: number) {
    super(
      'HOLDFAST_CAPACITY',
      `Semaphore ${quote(lock)} is in use with ${actual} permits, not ${expected}. Use one number everywhere; ` +
        'a new one takes effect when nobody holds it or waits for it.',
    );
    this.lock = lock;
    this.expected = expected;
    this.actual = actual;
  }
}

/** The engine can't do this. Thrown when the object is made, never in the middle of the work. */
export class UnsupportedError extends HoldfastError {
  constructor(message: string) {
    super('HOLDFAST_UNSUPPORTED', message);
  }
}

/** A mistake in what was passed to Holdfast: the message says which value and what is allowed. */
export class ConfigError extends HoldfastError {
  constructor(message: string, options?: ErrorOptions) {
    super('HOLDFAST_CONFIG', message, options);
  }
}

/** The engine could not be asked, or answered with an error of its own. */
export class EngineError extends HoldfastError {
  /** False: trying again can't help (credentials, rights, a protocol mismatch). */
  readonly retryable: boolean;

  constructor(message: string, options: { retryable?: boolean; cause?: unknown } = {}) {
    super('HOLDFAST_ENGINE', message, options.cause === undefined ? undefined : { cause: redacted(options.cause) });
    this.retryable = options.retryable ?? true;
  }
}

/** The Holdfast was closed, or is closing and the call did not come from work that may still end. */
export class ClosedError extends HoldfastError {
  constructor() {
    super('HOLDFAST_CLOSED', 'This Holdfast has been closed: make a new one.');
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

/** An optimistic row was changed by others every time we tried. Nothing was written. */
export class ConflictError extends HoldfastError {
  readonly attempts: number;

  constructor(what: string, attempts: number) {
    super(
      'HOLDFAST_CONFLICT',
      `${what} was changed by others in each of ${attempts} tries. Nothing was written; try later, allow more retries, or take a lock.`,
    );
    this.attempts = attempts;
  }
}

/** A lock's name as it may stand in a message: names are users' data, quoting keeps one from forging a log line. */
export function quote(name: string): string {
  return printable(JSON.stringify(name));
}

/** Others' words in a message, without what could forge a log line or drive a terminal. */
function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Whatever an adapter threw, as an error of ours. */
export function asHoldfastError(thrown: unknown, doing: string): HoldfastError {
  if (thrown instanceof HoldfastError) return thrown;
  return new EngineError(`${doing} failed: ${maskCredentials(told(thrown))}`, { cause: thrown });
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
  if (!(thrown instanceof Error)) return new Error(maskCredentials(String(thrown)));
  const copy = new Error(maskCredentials(thrown.message));
  copy.name = thrown.name;
  if (thrown.stack) copy.stack = maskCredentials(thrown.stack);
  const code = (thrown as { code?: unknown }).code;
  if (typeof code === 'string' || typeof code === 'number') Object.assign(copy, { code });
  return copy;
}

/** Up to the last '@' of the word: whoever forgot to encode a password has '/', '?' and '@' in it. Not in `file:///`. */
function maskCredentials(text: string): string {
  return text.replace(/:\/\/(?!\/)\S*@/g, '://***@');
}
