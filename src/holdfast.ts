import { hostname } from 'node:os';
import { basename } from 'node:path';
import { type Clock, detached, systemClock } from './core/clock.js';
import { type Duration, parseDuration, show } from './core/duration.js';
import type { EngineSource, LineQuery, Traits } from './core/engine.js';
import { calling, ConfigError, UnsupportedError } from './core/errors.js';
import { Instance, type InstanceOptions, type InstanceStats } from './core/instance.js';
import { ALL } from './core/line.js';
import { withLongTimers } from './core/long-timer.js';
import { checkName, checkText } from './core/names.js';
import { checkOptions, type Known } from './core/options.js';
import type { LineView } from './core/view.js';
import { all, type AllLock } from './locks/all.js';
import { Election } from './locks/election.js';
import type { Lease } from './locks/lease.js';
import { checkPermits, LineLock, type Lock } from './locks/lock.js';
import { once, type OnceOptions, type OnceResult } from './locks/once.js';
import { Register } from './locks/register.js';
import { rwLock, type RwLock } from './locks/rw-lock.js';

export interface HoldfastOptions {
  /**
   * How long the engine keeps what we hold after we fall silent: 1 s to 10 min, default `'10s'`. Longer survives longer
   * stalls and outages, shorter frees a dead process's locks sooner. It is renewed at a third of it.
   */
  readonly ttl?: Duration;
  /** What people see in `inspect` and in errors, beside host and pid. Default: the script's name. */
  readonly label?: string;
  /** Keeps apart what shares a server. Default `'holdfast'`. */
  readonly namespace?: string;
  /** Whether waiters of this instance may pass a lock on among themselves for a while. Default true; false: strict FIFO. */
  readonly cohort?: boolean;
  /** Whether code inside a `run` may enter the same lock again. Default true; false: DeadlockError. */
  readonly reentrant?: boolean;
  /** How many acquires may wait at once. Default 10,000. */
  readonly maxWaiters?: number;
  /** For tests: another clock, timers and randomness. */
  readonly clock?: Clock;
}

export interface InspectOptions extends LineQuery {}

export interface ReadyOptions {
  /** How long the engine may take. Default: one ttl. */
  readonly timeout?: Duration;
}

/** See `locks.stats()`. */
export interface Stats extends InstanceStats {}

export interface CloseOptions {
  /** How long functions inside a `run` may go on. Default: one ttl; 0: they are told at once. */
  readonly drain?: Duration;
}

/**
 * Locks over one engine.
 *
 * @example
 * await using locks = new Holdfast('memory:');
 * await locks.mutex('order:42').run(async (lease) => {
 *   lease.assertHeld();
 * });
 */
export class Holdfast implements AsyncDisposable {
  readonly #instance: Instance;

  /** @param source what an engine's function gives (`memory()`). No I/O happens yet. */
  constructor(source: EngineSource, options: HoldfastOptions = {}) {
    // Not repeated: it may have a password in it.
    if (typeof source === 'string')
      throw new ConfigError(
        "holdfast/core has no URLs: import { Holdfast } from 'holdfast', or hand in an engine, like memory() from 'holdfast/memory'.",
      );
    if (typeof source?.connect !== 'function' || !source.traits) {
      throw new ConfigError(
        `Holdfast needs an engine: a URL like 'memory:', or one like memory() from 'holdfast/memory'; got ${show(source)}.`,
      );
    }
    checkOptions(options, HOLDFAST_OPTIONS, 'Holdfast');
    this.#instance = new Instance(source, readOptions(options, source.traits));
  }

  /** What this engine promises. */
  get traits(): Traits {
    return this.#instance.source.traits;
  }

  /** One holder at a time. */
  mutex(name: string): Lock {
    return new LineLock(this.#instance, { kind: 'lock', name, weight: ALL, capacity: ALL });
  }

  /** Readers share, writers exclude. The mutex of the same name is its write lock. */
  rwLock(name: string): RwLock {
    if (this.traits.sharing === 'exclusive')
      throw new UnsupportedError('This engine has no read/write locks: only mutexes.');
    return rwLock(this.#instance, name);
  }

  /** At most `permits` at a time; everybody must use the same number. */
  semaphore(name: string, permits: number): Lock {
    if (this.traits.sharing !== 'weighted') throw new UnsupportedError('This engine has no semaphores.');
    const capacity = checkPermits(permits, ALL, 'A semaphore’s number of permits');
    return new LineLock(this.#instance, { kind: 'semaphore', name, weight: 1, capacity });
  }

  /** Several locks as one: in one order, all or none. */
  all(locks: readonly Lock[]): AllLock {
    return all(this.#instance, locks);
  }

  election(name: string): Election {
    this.#instance.requireRegisters('An election');
    this.#instance.requireListing('An election');
    return new Election(this.#instance, name);
  }

  /** Runs `work` once across the fleet, else skips: another runs it, or ran it less than `atLeast` ago. */
  async once<T>(
    name: string,
    options: OnceOptions,
    work: (lease: Lease) => T | PromiseLike<T>,
  ): Promise<OnceResult<T>> {
    this.#instance.requireRegisters('once');
    if (typeof work !== 'function')
      throw new ConfigError(
        `once needs a function to run, behind its options: once(name, {}, work); got ${show(work)}.`,
      );
    return once(this.#instance, name, options, work);
  }

  register(name: string): Register {
    this.#instance.requireRegisters('A register');
    return new Register(this.#instance, name);
  }

  /** Lines that somebody holds or waits for. */
  inspect(query: InspectOptions = {}): AsyncIterable<LineView> {
    this.#instance.requireListing('inspect');
    checkOptions(query, INSPECT_OPTIONS, 'inspect');
    return this.#instance.inspect(query);
  }

  /**
   * Takes a claim away. It is marked and its holder told; it goes when the holder has let go (or after its ttl, if the
   * holder is dead), so exclusion holds. False: there is no such claim.
   *
   * @param reason what the holder is told: text of at most 1 KiB in UTF-8.
   */
  async evict(name: string, claimId: string, reason = 'evicted'): Promise<boolean> {
    this.#instance.requireListing('evict');
    checkName(name);
    checkName(claimId, 'A claim id');
    checkText(reason, 'A reason', LONGEST_REASON_BYTES);
    return calling(() => this.#instance.evict(name, claimId, reason));
  }

  /**
   * Asks the engine now: a readiness probe. Resolves when it has answered, also while it is guarded (see `stats`); rejects with an
   * EngineError when it has not, within `timeout` (default: one ttl).
   *
   * @example
   * app.get('/ready', async (_, reply) => reply.code(await locks.ready({ timeout: '2s' }).then(() => 200, () => 503)).send());
   */
  async ready(options: ReadyOptions = {}): Promise<void> {
    checkOptions(options, READY_OPTIONS, 'ready');
    const { timeout = this.#instance.options.ttlMs } = options;
    const timeoutMs = parseDuration(timeout, 'timeout');
    return calling(() => this.#instance.ready(timeoutMs));
  }

  /** What this instance has and how it is, for metrics and probes. Asks nobody. */
  stats(): Stats {
    return this.#instance.stats();
  }

  /**
   * Closes what Holdfast opened, and gives nothing away under running work: functions inside `run`, `all().run` and `once` may
   * end, with their locks kept, for up to `drain` (default: one ttl; 0: at once). The term of a `lead` is aborted at once and
   * kept until its function ends. Leases of `acquire` are released, and whoever waits gets a ClosedError, at once. When the
   * time is over, signals abort and everything is released. Called again it can only be sooner.
   *
   * @example
   * process.once('SIGTERM', () => void locks.close({ drain: '20s' }));
   */
  async close(options: CloseOptions = {}): Promise<void> {
    checkOptions(options, CLOSE_OPTIONS, 'close');
    const { drain = this.#instance.options.ttlMs } = options;
    return this.#instance.close(parseDuration(drain, 'drain'));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const HOLDFAST_OPTIONS: Known<HoldfastOptions> = {
  ttl: true,
  label: true,
  namespace: true,
  cohort: true,
  reentrant: true,
  maxWaiters: true,
  clock: true,
};
const INSPECT_OPTIONS: Known<InspectOptions> = { name: true, prefix: true };
const READY_OPTIONS: Known<ReadyOptions> = { timeout: true };
const CLOSE_OPTIONS: Known<CloseOptions> = { drain: true };

const LONGEST_REASON_BYTES = 1_024;
const LONGEST_TTL_MS = 600_000;

function readOptions(options: HoldfastOptions, traits: Traits): InstanceOptions {
  const ttlMs = parseDuration(options.ttl ?? '10s', 'ttl');
  if (ttlMs < traits.minTtlMs || ttlMs > LONGEST_TTL_MS) {
    throw new ConfigError(`ttl must be from ${traits.minTtlMs} ms to 10 min with this engine; got ${ttlMs} ms.`);
  }
  const app = checkName(options.label ?? basename(process.argv[1] ?? 'node'), 'label');
  const hostLabel = `${hostname()}:${process.pid}`;
  return {
    clock: withLongTimers(options.clock ? detached(options.clock) : systemClock),
    ttlMs,
    label: `${app}@${hostLabel}`,
    hostLabel,
    namespace: checkName(options.namespace ?? 'holdfast', 'namespace'),
    cohort: flag(options.cohort, 'cohort'),
    reentrant: flag(options.reentrant, 'reentrant'),
    maxWaiters: checkPermits(options.maxWaiters ?? 10_000, ALL, 'maxWaiters'),
  };
}

function flag(value: unknown, what: string): boolean {
  if (value === undefined || typeof value === 'boolean') return value ?? true;
  throw new ConfigError(`${what} must be true or false; got ${show(value)}.`);
}
