import type { Clock, Timer } from './clock.js';
import type { Cohort } from './cohort.js';
import { AcquireTimeoutError, type Blocker, type HoldfastError } from './errors.js';
import type { ServerGuard } from './server-guard.js';
import type { Waiter } from './waiter.js';

interface Seen {
  readonly look: Look;
  readonly at: number;
}

interface Late {
  readonly cohort: Cohort;
  /** What it is told if nobody answers to the look either: nothing has been heard of the engine since it began to wait. */
  readonly unheard: HoldfastError | undefined;
}

/** A line as it was seen at one moment. */
export interface Look {
  /** Nobody may hold it though many wait: an engine that has just restarted grants nothing for a while. */
  readonly holder: Blocker | undefined;
  /** The holder is this very process. */
  readonly heldHere: boolean;
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
  readonly #guard: ServerGuard;
  /** Those whose time is over, and who wait for the look that is under way. */
  readonly #late = new Map<Waiter, Late>();
  #seen: Seen | undefined;
  #looking = false;
  #timer: Timer | undefined;

  constructor(clock: Clock, lineName: string, guard: ServerGuard, look: () => Promise<Look | undefined>) {
    this.#clock = clock;
    this.#guard = guard;
    this.#lineName = lineName;
    this.#look = look;
  }

  /** This waiter's time will soon be over. */
  prepare(waiter: Waiter): void {
    if (this.#looking || this.#freshFor(waiter)) return;
    this.#looking = true;
    void this.#look().then((look) => {
      this.#looking = false;
      this.#seen = look && { look, at: this.#clock.now() };
      if (this.#late.size > 0) this.#tell(this.#seen);
    });
  }

  /** @param unheard see Late. */
  give(waiter: Waiter, cohort: Cohort, unheard?: HoldfastError): void {
    this.#late.set(waiter, { cohort, unheard });
    if (this.#timer) return;
    this.prepare(waiter);
    // What is fresh now is told, though it be no longer so when the timer runs.
    const seen = this.#freshFor(waiter);
    // Not at once: those whose time is over in the same moment are told together.
    this.#timer = this.#clock.timer(seen ? 0 : EXPLAIN_WITHIN_MS, () => this.#tell(seen));
  }

  /** It is settled, whoever did it. */
  forget(waiter: Waiter): void {
    if (!this.#late.delete(waiter) || this.#late.size > 0) return;
    this.#timer?.close();
    this.#timer = undefined;
  }

  /** What was seen a short while ago, and since this waiter began. */
  #freshFor({ startedAt }: Waiter): Seen | undefined {
    const oldest = Math.max(startedAt, this.#clock.now() - FRESH_MS);
    return this.#seen && this.#seen.at >= oldest ? this.#seen : undefined;
  }

  #tell(seen: Seen | undefined): void {
    this.#timer?.close();
    this.#timer = undefined;
    const late = [...this.#late];
    this.#late.clear();
    const look = seen?.look;
    const cohorts = new Set(late.map(([, { cohort }]) => cohort));
    const places = look && new Map([...cohorts].flatMap((cohort) => cohort.places(look)));
    for (const [waiter, { unheard }] of late) {
      const inTheWay = { holder: look?.holder, heldHere: look?.heldHere === true, place: places?.get(waiter) };
      if (unheard && !(seen && seen.at >= waiter.startedAt)) waiter.reject(unheard);
      // They stood there before the server was guarded, or are not served yet since.
      else if (look && !look.holder && this.#guard.lately) waiter.reject(this.#guard.error(this.#lineName));
      else waiter.reject(new AcquireTimeoutError(this.#lineName, waiter.timeoutMs, inTheWay));
    }
  }
}
