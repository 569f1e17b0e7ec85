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

/** How many of those that wait alone look again with each beat, though nothing was told: watches have been known to hang. */
const CHECKED_AT_ONCE = 16;

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
  /** Those that looked longest ago first. */
  readonly #alone = new Set<LoneWait>();

  constructor(setup: Setup) {
    this.#setup = setup;
  }

  /** @returns how to stop waiting. */
  wait(waiter: Waiter, found: Waiting): () => void {
    const { spot } = waiter;
    if (spot.claim.line.kind === 'semaphore') return this.#semaphore(spot).join(waiter, found.watch);
    const wait: LoneWait = new LoneWait(this.#setup, waiter, () => this.#alone.delete(wait));
    this.#alone.add(wait);
    wait.follow(found);
    return () => wait.stop();
  }

  /** Looks for what may not have been told. */
  check(): void {
    for (const wait of [...this.#alone].slice(0, CHECKED_AT_ONCE)) {
      this.#alone.delete(wait);
      this.#alone.add(wait);
      wait.look();
    }
    for (const shared of this.#semaphores.values()) shared.look();
  }

  #semaphore({ prefix, claim }: Spot): SharedWait {
    const known = this.#semaphores.get(prefix);
    if (known) return known;
    const shared = new SharedWait(this.#setup, prefix, claim.capacity, () => this.#semaphores.delete(prefix));
    this.#semaphores.set(prefix, shared);
    return shared;
  }
}

/** A mutex, a reader or a writer behind the one claim that is in its way. */
class LoneWait {
  readonly #setup: Setup;
  readonly #waiter: Waiter;
  readonly #over: () => void;
  #watch: Watch | undefined;
  #looking = false;
  #stopped = false;

  constructor(setup: Setup, waiter: Waiter, over: () => void) {
    this.#setup = setup;
    this.#waiter = waiter;
    this.#over = over;
  }

  follow({ watch }: Waiting): void {
    this.#watch?.close();
    this.#watch = this.#setup.watches.watch(watch, { changed: () => this.look(), gap: () => this.look() });
  }

  /** What changes while it looks is told by the watch that follows: it begins where the look was. */
  look(attempt = 0): void {
    if (this.#looking || this.#stopped) return;
    this.#looking = true;
    const { spot, revision } = this.#waiter;
    this.#setup.lines.look(spot, revision).then(
      (found) => {
        this.#looking = false;
        if (!this.#stopped) this.#looked(found);
      },
      () =>
        later(this.#setup.clock, attempt, () => {
          this.#looking = false;
          this.look(attempt + 1);
        }),
    );
  }

  stop(): void {
    this.#stopped = true;
    this.#watch?.close();
    this.#over();
  }

  #looked(found: Found): void {
    if (found.state === 'waiting') return this.follow(found);
    this.stop();
    if (found.state === 'held') this.#waiter.granted();
    else this.#waiter.vanished();
  }
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
    else if (this.#heard >= target.from || this.#looking) this.look();
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
        this.look();
      },
      gap: () => {
        this.#watch = undefined;
        this.look();
      },
    });
  }

  look(attempt = 0): void {
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
        if (this.#lookAgain) this.look();
      },
      () =>
        later(this.#setup.clock, attempt, () => {
          this.#looking = false;
          this.look(attempt + 1);
        }),
    );
  }
}

function later(clock: Clock, attempt: number, run: () => unknown): void {
  clock.timer(backoff(clock, attempt, FIRST_PAUSE_MS, LONGEST_PAUSE_MS), run).unref();
}
