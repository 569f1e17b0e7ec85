import type { Clock, Timer } from './clock.js';
import type { Cohort } from './cohort.js';
import { AcquireTimeoutError, type Blocker } from './errors.js';
import type { Waiter } from './waiter.js';

/** A line as it was seen at one moment. */
export interface Look {
  /** Nobody may hold it though many wait: an engine that has just restarted grants nothing for a while. */
  readonly holder: Blocker | undefined;
  /** How many claims stood before each, by claim id. */
  readonly places: ReadonlyMap<string, number>;
}

/** A timeout is kept to within a tenth of a second: whoever can't be told by then who holds the lock is not told. */
export const EXPLAIN_WITHIN_MS = 80;

/** What was seen this long ago still tells who is in the way. */
const FRESH_MS = 1_000;

/**
 * Tells those whose time is over who holds the lock and how many were before them. It looks shortly before the time is over,
 * so that a far engine does not make timeouts late. One look at a time serves all of them, so that a crowd whose time runs
 * out together costs one listing, not one each. A lock that is granted meanwhile is had after all.
 */
export class Explanation {
  readonly #clock: Clock;
  readonly #lineName: string;
  readonly #look: () => Promise<Look | undefined>;
  /** Those whose time is over, and who wait for the look that is under way. */
  readonly #late = new Map<Waiter, Cohort>();
  #seen: { readonly look: Look | undefined; readonly at: number } | undefined;
  #looking = false;
  #timer: Timer | undefined;

  constructor(clock: Clock, lineName: string, look: () => Promise<Look | undefined>) {
    this.#clock = clock;
    this.#lineName = lineName;
    this.#look = look;
  }

  /** Somebody's time will soon be over. */
  prepare(): void {
    if (this.#looking || this.#isFresh()) return;
    this.#looking = true;
    void this.#look().then((look) => {
      this.#looking = false;
      this.#seen = { look, at: this.#clock.now() };
      if (this.#late.size > 0) this.#tell(look);
    });
  }

  give(waiter: Waiter, cohort: Cohort): void {
    this.#late.set(waiter, cohort);
    if (this.#timer) return;
    this.prepare();
    // Not at once: those whose time is over in the same moment are told together.
    const waitMs = this.#isFresh() ? 0 : EXPLAIN_WITHIN_MS;
    this.#timer = this.#clock.timer(waitMs, () => this.#tell(this.#isFresh() ? this.#seen?.look : undefined));
  }

  /** It is settled, whoever did it. */
  forget(waiter: Waiter): void {
    if (!this.#late.delete(waiter) || this.#late.size > 0) return;
    this.#timer?.close();
    this.#timer = undefined;
  }

  #isFresh(): boolean {
    return this.#seen !== undefined && this.#clock.now() - this.#seen.at < FRESH_MS;
  }

  #tell(look: Look | undefined): void {
    this.#timer?.close();
    this.#timer = undefined;
    const late = [...this.#late.keys()];
    const cohorts = new Set(this.#late.values());
    this.#late.clear();
    const places = look && new Map([...cohorts].flatMap((cohort) => cohort.places(look)));
    for (const waiter of late) {
      const seen = { holder: look?.holder, place: places?.get(waiter) };
      waiter.reject(new AcquireTimeoutError(this.#lineName, waiter.patience.timeoutMs!, seen));
    }
  }
}
