/**
 * Claims that wait. Each watches what stands in its way, and looks again when that changes. The permits of one semaphore
 * share one watch and one look, however many of ours wait: every release there concerns all of them.
 *
 * A look that fails is repeated until it succeeds: nobody else would tell us.
 */
import { backoff } from '../../core/backoff.js';
import type { Clock } from '../../core/clock.js';
import type { Change, Watch, Watches, WatchTarget } from './client/watches.js';
import { type Found, heldCount, type Lines, permitsWatch, type Spot } from './lines.js';

export interface Waiter {
  readonly spot: Spot;
  readonly revision: bigint;
  granted(): void;
  /** Its key is not there any more. */
  vanished(): void;
}

type Waiting = Extract<Found, { state: 'waiting' }>;

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1_000;

interface Setup {
  readonly lines: Lines;
  readonly watches: Watches;
  readonly clock: Clock;
}

export class WaitingRoom {
  readonly #setup: Setup;
  /** By the prefix of the line. */
  readonly #semaphores = new Map<string, SharedWait>();

  constructor(setup: Setup) {
    this.#setup = setup;
  }

  /** @returns how to stop waiting. */
  wait(waiter: Waiter, found: Waiting): () => void {
    const { spot } = waiter;
    if (spot.claim.line.kind === 'lock') return waitAlone(this.#setup, waiter, found);
    let shared = this.#semaphores.get(spot.prefix);
    if (!shared) {
      const { prefix } = spot;
      shared = new SharedWait(this.#setup, prefix, spot.claim.capacity, () => this.#semaphores.delete(prefix));
      this.#semaphores.set(prefix, shared);
    }
    return shared.join(waiter, found.watch);
  }
}

function waitAlone({ lines, watches, clock }: Setup, waiter: Waiter, found: Waiting): () => void {
  let over = false;
  let watch: Watch | undefined;
  const follow = ({ watch: target }: Waiting): void => {
    let woken = false;
    const wake = (): void => {
      if (woken) return;
      woken = true;
      watch?.close();
      if (!over) look(0);
    };
    watch = watches.watch(target, { changed: wake, gap: wake });
  };
  const look = (attempt: number): void => {
    lines.look(waiter.spot, waiter.revision).then(
      (now) => {
        if (over) return;
        if (now.state === 'waiting') return follow(now);
        over = true;
        if (now.state === 'held') waiter.granted();
        else waiter.vanished();
      },
      () => later(clock, attempt, () => over || look(attempt + 1)),
    );
  };
  follow(found);
  return () => {
    over = true;
    watch?.close();
  };
}

class SharedWait {
  readonly #setup: Setup;
  readonly #prefix: string;
  readonly #capacity: number;
  readonly #empty: () => void;
  readonly #waiters = new Map<string, Waiter>();
  #watch: Watch | undefined;
  /** The newest change that we heard of. */
  #heard = 0n;
  #looking = false;
  #lookAgain = false;

  constructor(setup: Setup, prefix: string, capacity: number, empty: () => void) {
    this.#setup = setup;
    this.#prefix = prefix;
    this.#capacity = capacity;
    this.#empty = empty;
  }

  join(waiter: Waiter, target: WatchTarget): () => void {
    const { key } = waiter.spot;
    this.#waiters.set(key, waiter);
    if (!this.#watch) this.#follow(target);
    // Room that was made after it entered may have been told before we knew that it waits.
    else if (this.#heard >= target.from || this.#looking) this.#look();
    return () => this.#leave(key);
  }

  #leave(key: string): void {
    this.#waiters.delete(key);
    if (this.#waiters.size > 0) return;
    this.#watch?.close();
    this.#empty();
  }

  #follow(target: WatchTarget): void {
    this.#watch = this.#setup.watches.watch(target, {
      changed: (changes: readonly Change[]) => {
        for (const { kv } of changes) if (kv.modRevision > this.#heard) this.#heard = kv.modRevision;
        this.#look();
      },
      gap: () => {
        this.#watch = undefined;
        this.#look();
      },
    });
  }

  #look(attempt = 0): void {
    if (this.#looking) {
      this.#lookAgain = true;
      return;
    }
    if (this.#waiters.size === 0) return;
    this.#looking = true;
    this.#lookAgain = false;
    this.#setup.lines.permits(this.#prefix, this.#capacity).then(
      ({ standings, at }) => {
        this.#looking = false;
        for (const { key, kv } of standings.slice(0, heldCount(standings, this.#capacity))) {
          const waiter = this.#waiters.get(key);
          if (waiter?.revision !== kv.createRevision) continue;
          this.#leave(key);
          waiter.granted();
        }
        if (this.#waiters.size === 0) return;
        if (!this.#watch) this.#follow(permitsWatch(this.#prefix, at));
        if (this.#lookAgain) this.#look();
      },
      () =>
        later(this.#setup.clock, attempt, () => {
          this.#looking = false;
          this.#look(attempt + 1);
        }),
    );
  }
}

function later(clock: Clock, attempt: number, run: () => unknown): void {
  clock.timer(backoff(clock, attempt, FIRST_PAUSE_MS, LONGEST_PAUSE_MS), run).unref();
}
