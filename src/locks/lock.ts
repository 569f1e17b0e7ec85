import { type Duration, optionalDuration, show } from '../core/duration.js';
import type { LineKind } from '../core/engine.js';
import { Caller, ClosedError, ConfigError, fromHere, quote } from '../core/errors.js';
import type { Instance } from '../core/instance.js';
import { checkName } from '../core/names.js';
import { type Advice, checkOptions, type Known } from '../core/options.js';
import { Frame, taskForRun } from '../core/reentrancy.js';
import { type Asking, lineKey, type Target } from '../core/target.js';
import type { Turn } from '../core/turn.js';
import { emptyLineView, type LineView } from '../core/view.js';
import { HeldLease, type Lease, ownLease } from './lease.js';
import { runInside } from './run.js';

export interface TryOptions {
  /** Cancels the wait only; rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Semaphores: how many permits to take (default 1). */
  readonly permits?: number;
  /** The lease releases itself after this long, and is lost with reason `maxHold`. Default: never. */
  readonly maxHold?: Duration;
  /** What `inspect` shows instead of the application's label. */
  readonly label?: string;
  /** Re-enter this lease of the same lock by hand. */
  readonly within?: Lease;
}

export interface AcquireOptions extends TryOptions {
  /** How long to wait. Default: for ever; 0: one try. */
  readonly timeout?: Duration;
}

/** What a lock is taken for, as nobody but this library says. @internal */
export interface Purpose {
  /** Of the run that is to follow. */
  readonly task?: number | undefined;
  /** See Patience. */
  readonly tryEndsAt?: number | undefined;
  /** What a candidate campaigns with. */
  readonly value?: string;
  /** See Asking. */
  readonly began?: Asking['began'];
}

const NOTHING = {};

const TRY_OPTIONS: Known<TryOptions> = { signal: true, permits: true, maxHold: true, label: true, within: true };
const ACQUIRE_OPTIONS: Known<AcquireOptions> = { timeout: true, ...TRY_OPTIONS };

const ACQUIRE_ADVICE: Advice = {
  ttl:
    'The ttl is that of the Holdfast, new Holdfast(url, { ttl }), and a lease is renewed for as long as it is held. To end it ' +
    'after a time, use maxHold.',
};
const TRY_ADVICE: Advice = { ...ACQUIRE_ADVICE, timeout: 'It never waits: use acquire({ timeout }).' };

/** @internal */
export function checkLockOptions(options: unknown, waits: boolean): void {
  if (waits) checkOptions(options, ACQUIRE_OPTIONS, 'acquire', ACQUIRE_ADVICE);
  else checkOptions(options, TRY_OPTIONS, 'tryAcquire', TRY_ADVICE);
}

/** What all locks have in common: mutex, read, write, semaphore and `all()`. A lock is a handle; making one does no I/O. */
export interface Lock<L = Lease, View = LineView> {
  readonly name: string;
  /** Waits in line. Throws AcquireTimeoutError when it is busy for the whole timeout. */
  acquire(options?: AcquireOptions): Promise<L>;
  /** Undefined when it is busy. Never waits in line. */
  tryAcquire(options?: TryOptions): Promise<L | undefined>;
  /** Acquires, runs and releases. Re-entrant inside. Rejects with LeaseLostError if the lease was lost meanwhile. */
  run<T>(work: (lease: L) => T | PromiseLike<T>): Promise<T>;
  run<T>(options: AcquireOptions, work: (lease: L) => T | PromiseLike<T>): Promise<T>;
  /** Who holds it and who waits, without acquiring. */
  inspect(): Promise<View>;
}

/** @internal */
export interface LineLockSpec {
  readonly kind: LineKind;
  readonly name: string;
  readonly weight: number;
  readonly capacity: number;
  readonly reentrant?: boolean;
  /** Default: for locks; see Target. */
  readonly cohort?: boolean;
  /** It is half of a read/write lock. Default: false. */
  readonly rw?: boolean;
}

/** A lock of one line with one weight. @internal */
export class LineLock<L extends Lease = Lease> implements Lock<L> {
  readonly target: Target;
  readonly weight: number;
  readonly #instance: Instance;

  constructor(instance: Instance, spec: LineLockSpec) {
    const { kind, name, weight, capacity, reentrant = true, cohort = kind === 'lock', rw } = spec;
    const ref = { kind, name: checkName(name) };
    this.#instance = instance;
    this.weight = weight;
    this.target = { ref, key: lineKey(ref), capacity, cohort, reentrant, rw };
  }

  get name(): string {
    return this.target.ref.name;
  }

  acquire(options: AcquireOptions = NOTHING): Promise<L> {
    return this.take(options, true) as Promise<L>;
  }

  tryAcquire(options: TryOptions = NOTHING): Promise<L | undefined> {
    return this.take(options, false);
  }

  run<T>(work: (lease: L) => T | PromiseLike<T>): Promise<T>;
  run<T>(options: AcquireOptions, work: (lease: L) => T | PromiseLike<T>): Promise<T>;
  async run<T>(...args: RunArguments<L, T>): Promise<T> {
    const [options, work] = runArguments(args);
    const task = taskForRun();
    const lease = (await this.take(options, true, { task })) as L;
    const frame = this.frameFor(lease, task);
    return runInside(this.#instance, [frame], () => work(lease));
  }

  toJSON(): object {
    return this.target.ref;
  }

  async inspect(): Promise<LineView> {
    const { ref, capacity } = this.target;
    this.#instance.requireListing('inspect');
    // It notes its caller itself.
    for await (const line of this.#instance.inspect({ name: ref.name })) if (line.kind === ref.kind) return line;
    return emptyLineView(ref.name, ref.kind, capacity);
  }

  belongsTo(instance: Instance): boolean {
    return this.#instance === instance;
  }

  /** What makes code run inside this lease. */
  frameFor(lease: Lease, task: number, parent?: Frame): Frame {
    return new Frame(this.#instance, this.target.key, ownLease(lease, 'lease').turn, task, parent);
  }

  /** Undefined only if it does not wait. */
  async take(options: AcquireOptions, waits: boolean, purpose: Purpose = NOTHING): Promise<L | undefined> {
    if (options !== NOTHING) checkLockOptions(options, waits);
    const asking = this.#asking(options, waits ? options.timeout : 0, purpose);
    const maxHoldMs = optionalDuration(options.maxHold, 'maxHold');
    // Of those that may well fail. The others are many, and most of them are awaited.
    const mayFail = options.timeout !== undefined || !this.#instance.reached;
    const caller = mayFail ? new Caller() : undefined;
    let turn: Turn | undefined;
    try {
      turn = await this.#instance.acquire(this.target, asking);
      // It may have ended while the promise was on its way.
      turn?.notice();
      if (turn && !turn.open) throw turn.undeliveredError();
      if (!turn && waits) throw await this.#instance.looks.busy(this.target.ref);
    } catch (error) {
      throw fromHere(error, caller);
    }
    if (!turn) return undefined;
    if (maxHoldMs !== undefined) turn.endAfter(maxHoldMs);
    // Every lease can do what the most capable one can; the interface says which of it makes sense.
    return new HeldLease(this.#instance, turn) as unknown as L;
  }

  #asking(options: TryOptions, timeout: Duration | undefined, { task, tryEndsAt, value, began }: Purpose): Asking {
    const { signal, label, within } = options;
    checkSignal(signal);
    const timeoutMs = optionalDuration(timeout, 'timeout');
    return {
      weight: this.#weight(options.permits),
      patience: { timeoutMs, signal, tryEndsAt },
      label: label === undefined ? undefined : checkName(label, 'label'),
      within: within === undefined ? undefined : this.#outer(within),
      task,
      value,
      began,
    };
  }

  #weight(permits: number | undefined): number {
    if (permits === undefined) return this.weight;
    const { ref, capacity } = this.target;
    if (ref.kind !== 'semaphore') throw new ConfigError(`permits are for semaphores; ${quote(ref.name)} is a lock.`);
    return checkPermits(permits, capacity, 'permits');
  }

  #outer(within: Lease): Asking['within'] {
    const lease = ownLease(within, 'within');
    if (!lease.isOn(this.target.ref)) {
      throw new ConfigError(`within must be a lease of ${quote(this.name)}; got one of ${quote(lease.name)}.`);
    }
    if (!lease.belongsTo(this.#instance)) {
      throw new ConfigError(`within must be a lease of the same Holdfast; got one of ${quote(lease.name)} of another.`);
    }
    if (!this.#instance.open) throw new ClosedError();
    lease.turn.notice();
    if (lease.state === 'released' || lease.state === 'lost') throw lease.lossError();
    return lease.turn;
  }
}

/** @internal */
export type RunArguments<L, T> =
  [work: (lease: L) => T | PromiseLike<T>] | [options: AcquireOptions, work: (lease: L) => T | PromiseLike<T>];

/** @internal */
export function runArguments<L, T>(args: RunArguments<L, T>): [AcquireOptions, (lease: L) => T | PromiseLike<T>] {
  return optionsAndWork('run', args);
}

/** Of a call that takes a function, and options before it. @internal */
export function optionsAndWork<Options, Work>(
  what: string,
  args: readonly [work: Work] | readonly [options: Options, work: Work],
): [Options, Work] {
  const [options, work] = args.length === 1 ? [NOTHING as Options, args[0]] : args;
  if (typeof work === 'function') return [options, work];
  if (typeof options === 'function')
    throw new ConfigError(`${what} takes its options first: ${what}({ timeout: '2s' }, work); got the function first.`);
  throw new ConfigError(`${what} needs a function to run; got ${show(work)}.`);
}

/** @internal */
export function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw new ConfigError(`signal must be an AbortSignal; got ${show(signal)}.`);
}

/** @internal */
export function checkPermits(value: unknown, most: number, what: string): number {
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most) return value as number;
  throw new ConfigError(`${what} must be a whole number from 1 to ${most}; got ${show(value)}.`);
}
