import { optionalDuration, show } from '../core/duration.js';
import { calling, ClosedError, AcquireTimeoutError, ConfigError, quote } from '../core/errors.js';
import type { Instance } from '../core/instance.js';
import { type Frame, taskForRun } from '../core/reentrancy.js';
import type { LineView } from '../core/view.js';
import type { Waiter } from '../core/waiter.js';
import { type HeldLease, type Lease, ownLease } from './lease.js';
import {
  type AcquireOptions,
  checkLockOptions,
  LineLock,
  type Lock,
  type Purpose,
  type RunArguments,
  runArguments,
  type TryOptions,
} from './lock.js';
import { runInside } from './run.js';

/** Several leases that were acquired together. */
export interface Leases extends AsyncDisposable {
  /** True while all of them are held. */
  readonly held: boolean;
  /** Aborts as soon as one of them is lost. */
  readonly signal: AbortSignal;
  /** The least of their remaining validities, in milliseconds. */
  readonly remaining: number;
  assertHeld(): void;
  /** Releases all; true if none was lost. */
  release(): Promise<boolean>;
  /** The lease of one of the locks. Of two locks of one name, the stronger one's. */
  of(lock: Lock): Lease;
}

export type AllLock = Lock<Leases, readonly LineView[]>;

/**
 * Several locks as one: always acquired in one order, so that two `all()` never wait for each other; duplicates merged
 * into the stronger; all or none; one timeout for the whole.
 *
 * @internal
 */
export function all(instance: Instance, locks: readonly Lock[]): AllLock {
  return new LockSet(instance, locks);
}

type Member = LineLock;

class LockSet implements AllLock {
  readonly name: string;
  readonly #instance: Instance;
  readonly #members: readonly Member[];

  constructor(instance: Instance, locks: readonly Lock[]) {
    this.#instance = instance;
    this.#members = merge(instance, locks);
    this.name = this.#members.map(({ name }) => name).join(' + ');
  }

  acquire(options: AcquireOptions = {}): Promise<Leases> {
    return calling(() => this.#acquire(options, taskForRun()));
  }

  async tryAcquire(options: TryOptions = {}): Promise<Leases | undefined> {
    checkLockOptions(options, false);
    const { maxHold, ...asked } = options;
    const endsAt = this.#endOfTry();
    return calling(() =>
      this.#gather({
        task: taskForRun(),
        maxHoldMs: optionalDuration(maxHold, 'maxHold'),
        settleBy: endsAt,
        take: (member, purpose) => member.take(asked, false, { ...purpose, tryEndsAt: endsAt }),
      }),
    );
  }

  run<T>(work: (leases: Leases) => T | PromiseLike<T>): Promise<T>;
  run<T>(options: AcquireOptions, work: (leases: Leases) => T | PromiseLike<T>): Promise<T>;
  async run<T>(...args: RunArguments<Leases, T>): Promise<T> {
    const [options, work] = runArguments(args);
    const task = taskForRun();
    const leases = await calling(() => this.#acquire(options, task));
    const frames: Frame[] = [];
    for (const member of this.#members) frames.push(member.frameFor(leases.of(member), task, frames.at(-1)));
    return runInside(this.#instance, frames, () => work(leases));
  }

  inspect(): Promise<readonly LineView[]> {
    return Promise.all(this.#members.map((member) => member.inspect()));
  }

  async #acquire(options: AcquireOptions, task: number): Promise<Leases> {
    checkLockOptions(options, true);
    const { timeout, maxHold, ...asked } = options;
    const timeoutMs = optionalDuration(timeout, 'timeout');
    const { clock } = this.#instance.options;
    const startedAt = clock.now();
    const tryEndsAt = timeoutMs === 0 ? this.#endOfTry() : undefined;
    const leases = await this.#gather({
      task,
      maxHoldMs: optionalDuration(maxHold, 'maxHold'),
      settleBy: tryEndsAt ?? (timeoutMs && startedAt + timeoutMs + LATE_MS),
      take: async (member, purpose) => {
        const leftMs = timeoutMs === undefined ? undefined : Math.max(0, timeoutMs - (clock.now() - startedAt));
        // Not one try more: that has a time of its own.
        if (leftMs === 0 && timeoutMs) throw new AcquireTimeoutError(member.name, timeoutMs);
        try {
          const inTime = leftMs === undefined ? asked : { ...asked, timeout: leftMs };
          return await member.take(inTime, true, { ...purpose, tryEndsAt });
        } catch (error) {
          if (timeoutMs === undefined || !(error instanceof AcquireTimeoutError)) throw error;
          throw new AcquireTimeoutError(error.lock, timeoutMs, error);
        }
      },
    });
    return leases as Leases;
  }

  /** One try of all of them may take as long as the engine may take for one answer. */
  #endOfTry(): number {
    const { clock, ttlMs } = this.#instance.options;
    return clock.now() + ttlMs / 3;
  }

  #until(endsAt: number, work: Promise<unknown>): Promise<void> {
    const { clock } = this.#instance.options;
    return new Promise((resolve) => {
      const timer = clock.timer(Math.max(0, endsAt - clock.now()), () => resolve());
      void work.then(() => {
        timer.close();
        resolve();
      });
    });
  }

  /**
   * Takes one after the other in order. What was taken is given back when one can't be had, and as soon as one of them is lost.
   * Whoever waits for the next does so inside those that it has, so that a deadlock with others is seen.
   */
  async #gather({ task, maxHoldMs, settleBy, take }: Gathering): Promise<Leases | undefined> {
    const taken = new Map<string, HeldLease>();
    const frames: Frame[] = [];
    let waiting: Waiter | undefined;
    const purpose: Purpose = { task, began: (waiter) => (waiting = waiter) };
    // An engine that does not answer is not waited for: whoever tries, or has a timeout, is to be told in time.
    const giveBack = (): Promise<unknown> => {
      const given = Promise.all([...taken.values()].map((lease) => lease.release()));
      return settleBy === undefined ? given : this.#until(settleBy, given);
    };
    try {
      for (const member of this.#members) {
        const inside = frames.at(-1);
        for (const { turn } of taken.values()) if (!turn.open) throw turn.undeliveredError();
        const got = await (inside ? inside.run(() => take(member, purpose)) : take(member, purpose));
        if (!got) {
          await giveBack();
          return undefined;
        }
        const lease = ownLease(got, 'lease');
        lease.turn.onLost = () => waiting?.reject(lease.turn.undeliveredError());
        taken.set(member.target.key, lease);
        frames.push(member.frameFor(lease, task, inside));
      }
      for (const { turn } of taken.values()) turn.onLost = undefined;
      const leases = new HeldLeases(this.#instance, taken);
      if (!leases.held && !this.#instance.open) throw new ClosedError();
      leases.assertHeld();
      // It counts from when all of them are held.
      if (maxHoldMs !== undefined) for (const { turn } of taken.values()) turn.endAfter(maxHoldMs);
      return leases;
    } catch (error) {
      await giveBack();
      throw error;
    } finally {
      for (const frame of frames) frame.end();
    }
  }
}

interface Gathering {
  readonly task: number;
  readonly maxHoldMs: number | undefined;
  /** Until then what was taken in vain is given back. Undefined: for as long as that takes. */
  readonly settleBy: number | undefined;
  readonly take: (member: Member, purpose: Purpose) => Promise<Lease | undefined>;
}

/** A timeout is kept to within a tenth of a second. */
const LATE_MS = 95;

class HeldLeases implements Leases {
  readonly #instance: Instance;
  readonly #leases: ReadonlyMap<string, HeldLease>;
  #signal: AbortSignal | undefined;

  constructor(instance: Instance, leases: ReadonlyMap<string, HeldLease>) {
    this.#instance = instance;
    this.#leases = leases;
  }

  get held(): boolean {
    return [...this.#leases.values()].every((lease) => lease.held);
  }

  get signal(): AbortSignal {
    this.#signal ??= AbortSignal.any([...this.#leases.values()].map((lease) => lease.signal));
    return this.#signal;
  }

  get remaining(): number {
    let least = Infinity;
    for (const lease of this.#leases.values()) least = Math.min(least, lease.remaining);
    return least;
  }

  assertHeld(): void {
    for (const lease of this.#leases.values()) lease.assertHeld();
  }

  async release(): Promise<boolean> {
    const released = await Promise.all([...this.#leases.values()].map((lease) => lease.release()));
    return released.every(Boolean);
  }

  of(lock: Lock): Lease {
    const lease = this.#leases.get(memberOf(this.#instance, lock).target.key);
    if (!lease) throw new ConfigError(`${quote(lock.name)} is not among these locks.`);
    return lease;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  toJSON(): object {
    return [...this.#leases.values()].map((lease) => lease.toJSON());
  }
}

/** Sorted by kind and name, one for each line. */
function merge(instance: Instance, locks: readonly Lock[]): readonly Member[] {
  if (!Array.isArray(locks) || locks.length === 0)
    throw new ConfigError(`all() needs an array of locks; got ${show(locks)}.`);
  const members = new Map<string, Member>();
  for (const lock of locks as readonly Lock[]) {
    const member = memberOf(instance, lock);
    const known = members.get(member.target.key);
    if (known && known.target.capacity !== member.target.capacity) {
      throw new ConfigError(`all() got semaphore ${quote(lock.name)} with two numbers of permits.`);
    }
    if (!known || known.weight < member.weight) members.set(member.target.key, member);
  }
  return [...members.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, member]) => member);
}

function memberOf(instance: Instance, lock: unknown): Member {
  if (lock instanceof LineLock && lock.belongsTo(instance)) return lock as Member;
  throw new ConfigError('all() takes mutexes, read locks, write locks and semaphores of the same Holdfast.');
}
