import type { Timer } from './clock.js';
import { AcquireTimeoutError, EngineError, type HoldfastError, LeaseLostError, type Loss } from './errors.js';
import { Hold } from './hold.js';
import { ALL } from './line.js';
import type { AcquireRequest, LocalLine } from './local-line.js';
import { Queue } from './queue.js';
import type { Station, Waiter } from './waiter.js';

/**
 * Waiters of one instance, of one weight and of one kind of lock that share a claim, one after the other or, if they are readers, together.
 * The claim and its turns are the hold's affair; when a hold is used up or lost, the cohort stands behind a new one,
 * at the back of the engine's line.
 */
export class Cohort implements Station {
  readonly line: LocalLine;
  readonly weight: number;
  readonly request: AcquireRequest;
  readonly #waiters = new Queue<Waiter>();
  #hold: Hold | undefined;
  /** Since when we have been asking the engine without an answer for the current claim. */
  #askedAt = 0;
  #trouble: HoldfastError | undefined;
  /** Failures in a row for the current claim and those before it that had no answer either. */
  #failures = 0;
  /** Runs while the engine can't be asked. */
  #patience: Timer | undefined;

  constructor(line: LocalLine, weight: number, request: AcquireRequest) {
    this.line = line;
    this.weight = weight;
    this.request = request;
  }

  get shared(): boolean {
    return this.request.cohort && this.weight < ALL;
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  /** Whether one more may join: always before the grant; after it, readers only while the budget lasts. */
  accepts(weight: number, rw: boolean): boolean {
    if (weight !== this.weight || rw !== this.request.rw || !this.request.cohort || !this.#hold) return false;
    return !this.shared || !this.#hold.granted || this.#hold.mayServe();
  }

  /** Whether one more would be served at once. */
  serves(weight: number): boolean {
    return this.accepts(weight, this.request.rw) && this.shared && this.#hold!.granted;
  }

  add(waiter: Waiter): void {
    waiter.at = this;
    if (this.serves(waiter.weight)) return this.#hold!.serve(waiter);
    waiter.link = this.#waiters.push(waiter);
    if (!this.#hold) this.#stand(!waiter.triesOnce, waiter.startedAt);
  }

  next(): Waiter | undefined {
    return this.#waiters.first;
  }

  // --- what the hold tells us -----------------------------------------------------------------------------------

  /** The hold serves nobody of ours any more: used up, lost, refused or downgraded. */
  detached(loss?: Loss): void {
    // Who has had no answer so far goes on to count from where it began.
    const askedAt = this.#hold?.answered ? this.line.options.clock.now() : this.#askedAt;
    if (this.#hold?.answered) this.#failures = 0;
    this.#hold = undefined;
    if (loss?.reason === 'evicted') {
      this.#waiters.first?.reject(new LeaseLostError(this.line.name, loss));
    }
    if (this.#waiters.size > 0) this.#stand(true, askedAt);
    else this.line.dissolved(this);
  }

  refused(): void {
    for (const waiter of this.#waiters) if (waiter.triesOnce) waiter.resolve(undefined);
    this.detached();
  }

  /** The engine could not be asked: those who would not wait for that give up. */
  failing(error: HoldfastError): void {
    this.#trouble = error;
    for (const waiter of this.#waiters) if (waiter.triesOnce) waiter.reject(unreachable(error));
    this.#failures += 1;
    // Never after a first failure: on a busy machine that may be our own slow start.
    if (!this.#patience && this.#failures > 1 && this.#waiters.size > 0) this.#losePatience();
  }

  /** Without a timeout of its own, a waiter gives up after one ttl without an answer. */
  #losePatience(): void {
    const { clock, ttlMs } = this.line.options;
    this.#patience = undefined;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const waiter of this.#waiters) {
      if (waiter.patience.timeoutMs !== undefined || this.#hold?.answered) continue;
      const leftMs = Math.max(waiter.startedAt, this.#askedAt) + ttlMs - clock.now();
      if (leftMs <= 0) waiter.reject(unreachable(this.#trouble));
      else nextMs = Math.min(nextMs, leftMs);
    }
    if (nextMs < Number.POSITIVE_INFINITY)
      this.#patience = clock.timer(Math.max(1, nextMs), () => this.#losePatience());
  }

  /** Nobody waits any more: a timer of ours must not keep the process alive. */
  #calm(): void {
    this.#patience?.close();
    this.#patience = undefined;
  }

  failed(error: HoldfastError): void {
    this.#hold = undefined;
    this.rejectAll(error);
    this.line.dissolved(this);
  }

  rejectAll(error: HoldfastError): void {
    for (let waiter = this.#waiters.first; waiter; waiter = this.#waiters.first) waiter.reject(error);
  }

  // --- what waiters tell us -------------------------------------------------------------------------------------

  dropped(waiter: Waiter): void {
    this.line.options.pending(-1);
    if (waiter.link) this.#waiters.remove(waiter.link);
    if (this.#waiters.size === 0) this.#calm();
    if (this.#waiters.size === 0) this.#hold?.unwanted();
  }

  timedOut(waiter: Waiter): void {
    if (this.#hold?.answered) void this.#explain(waiter, this.#hold);
    else waiter.reject(unreachable(this.#trouble));
  }

  /** The lock may still be granted while we look who has it: then the caller gets it after all. */
  async #explain(waiter: Waiter, hold: Hold): Promise<void> {
    const { holder, place } = await this.line.options.look(this.line.ref, hold.claimId);
    const before = place === undefined ? undefined : place + hold.turns.length + this.#before(waiter);
    waiter.reject(new AcquireTimeoutError(this.line.name, waiter.patience.timeoutMs!, { holder, place: before }));
  }

  /** How many of ours stand before it. */
  #before(waiter: Waiter): number {
    let count = 0;
    for (const other of this.#waiters) {
      if (other === waiter) break;
      count += 1;
    }
    return count;
  }

  #stand(wait: boolean, now: number): void {
    this.#askedAt = now;
    this.#trouble = undefined;
    this.#hold = new Hold(this);
    this.#hold.stand(wait);
  }
}

function unreachable(trouble: HoldfastError | undefined): EngineError {
  const why = 'The engine could not be asked in time; the lock itself may be free.';
  return new EngineError(trouble ? `${why} Last: ${trouble.message}` : why, trouble ? { cause: trouble } : {});
}
