import type { Clock } from './clock.js';
import { Cohort } from './cohort.js';
import { beginWait } from './deadlock.js';
import type { LineRef } from './engine.js';
import type { Blocker, HoldfastError } from './errors.js';
import type { Hold } from './hold.js';
import type { Keeper } from './keeper.js';
import { Queue } from './queue.js';
import type { Frame, Waited } from './reentrancy.js';
import type { Waiter } from './waiter.js';

export interface LocalLineOptions {
  readonly clock: Clock;
  readonly keeper: Keeper;
  readonly ttlMs: number;
  /** Who stands in the way of a claim; asked when a wait timed out. */
  look(line: LineRef, claimId: string | undefined): Promise<Obstacle>;
  /** One acquire more, or one fewer, is pending. */
  pending(by: 1 | -1): void;
  /** Nobody of ours holds or waits any more. */
  emptied(line: LocalLine): void;
}

export interface Obstacle {
  readonly holder?: Blocker | undefined;
  readonly place?: number | undefined;
}

export interface AcquireRequest {
  readonly capacity: number;
  /** Whether the waiter may share a claim with others of this instance. */
  readonly cohort: boolean;
  readonly note: string;
  /** See Claim. */
  readonly rw: boolean;
}

/**
 * The waiters of one instance on one line, gathered in *cohorts* that share a claim in the engine's line:
 *
 *     engine's line   …  [ours: write]   [theirs]   [ours: read]   …
 *                             │                          │
 *     cohorts             W1 W2 W3                    R1 R2
 *
 * A waiter joins the last cohort if that is of its kind, else it starts a new one behind it. So within an instance the
 * order is strict, and between instances the engine's line decides.
 */
export class LocalLine implements Waited {
  readonly ref: LineRef;
  readonly key: string;
  readonly options: LocalLineOptions;
  readonly #holds = new Queue<Hold>();
  #last: Cohort | undefined;

  constructor(ref: LineRef, key: string, options: LocalLineOptions) {
    this.ref = ref;
    this.key = key;
    this.options = options;
  }

  get name(): string {
    return this.ref.name;
  }

  /** A semaphore's waiter is served by any of its holders, so none of them alone can be said to block it. */
  *holderFrames(): Iterable<Frame> {
    if (this.ref.kind === 'semaphore') return;
    for (const hold of this.#holds) {
      for (const { frame } of hold.turns) if (frame) yield frame;
    }
  }

  acquire(waiter: Waiter, request: AcquireRequest): void {
    if (waiter.triesOnce && request.cohort && this.#busyFor(waiter.weight)) return waiter.resolve(undefined);
    const joined = request.cohort && this.#last?.accepts(waiter.weight, request.rw) ? this.#last : undefined;
    // Who only tries does not wait, so it can't deadlock either.
    if (!waiter.triesOnce && !joined?.serves(waiter.weight)) beginWait(waiter, this);
    this.options.pending(1);
    const cohort = joined ?? new Cohort(this, waiter.weight, request);
    this.#last = cohort;
    cohort.add(waiter);
    waiter.watch(this.options.clock);
  }

  /** What only we know of a claim of ours: how many wait behind it, and the token of the turn that has it. */
  localView(claimId: string): { local: number; token: bigint | undefined } | undefined {
    for (const hold of this.#holds) if (hold.claimId === claimId) return hold.view();
    return undefined;
  }

  close(error: HoldfastError): void {
    for (const hold of [...this.#holds]) hold.close(error);
  }

  // --- what holds and cohorts tell us ---------------------------------------------------------------------------

  began(hold: Hold): void {
    hold.link = this.#holds.push(hold);
  }

  ended(hold: Hold): void {
    if (hold.link) this.#holds.remove(hold.link);
    if (this.#holds.size === 0) this.options.emptied(this);
  }

  dissolved(cohort: Cohort): void {
    if (this.#last === cohort) this.#last = undefined;
  }

  /** Ours hold it or wait for it in a way that excludes this weight: not to be had, and nobody passes a waiter. */
  #busyFor(weight: number): boolean {
    for (const hold of this.#holds) if (!hold.sharesWith(weight)) return true;
    return false;
  }
}
