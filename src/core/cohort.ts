import type { Timer } from './clock.js';
import { beginWait } from './deadlock.js';
import { EngineError, type HoldfastError, isSilence, LeaseLostError, type Loss } from './errors.js';
import type { Look } from './explanation.js';
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
  readonly request: AcquireRequest;
  readonly #waiters = new Queue<Waiter>();
  /** How many of them only try. */
  #tries = 0;
  #hold: Hold | undefined;
  /** Since when we have been asking the engine without an answer for the current claim. */
  #askedAt = 0;
  #trouble: HoldfastError | undefined;
  /** How often the engine had answered by then: what it says later ends the trouble. */
  #answersBeforeTrouble = 0;
  /** Failures in a row for the current claim and those before it that had no answer either. */
  #failures = 0;
  /** Runs while the engine can't be asked. */
  #patience: Timer | undefined;

  constructor(line: LocalLine, request: AcquireRequest) {
    this.line = line;
    this.request = request;
  }

  get shared(): boolean {
    return this.request.cohort && this.request.weight < ALL;
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  /** How one more could join: always before the grant, behind the others; after it readers only, at once, while the budget lasts. */
  admits({ weight, rw }: AcquireRequest): 'behind' | 'at once' | undefined {
    const own = this.request;
    if (weight !== own.weight || rw !== own.rw || !own.cohort || !this.#hold) return undefined;
    if (!this.shared || !this.#hold.granted) return 'behind';
    return this.#hold.mayServe() ? 'at once' : undefined;
  }

  serve(waiter: Waiter): void {
    this.#hold!.serve(waiter);
  }

  add(waiter: Waiter): void {
    waiter.at = this;
    waiter.answersBefore = this.line.realm.answers;
    waiter.link = this.#waiters.push(waiter);
    if (waiter.triesOnce) this.#tries += 1;
    if (waiter.weight === ALL && !waiter.endsByItself) this.line.endlessWriters += 1;
    if (!this.#hold) this.#stand(!waiter.triesOnce, waiter.startedAt);
    else if (this.#hold.answered) this.#wait(waiter);
  }

  next(): Waiter | undefined {
    return this.#waiters.first;
  }

  /** How many stand before each of our waiters, ours included. */
  places({ places }: Look): [Waiter, number][] {
    const claimId = this.#hold?.claimId;
    const before = claimId === undefined ? undefined : (places.get(claimId) ?? places.size);
    if (before === undefined) return [];
    const ours = before + this.#hold!.turns.length;
    return [...this.#waiters].map((waiter, index) => [waiter, ours + index]);
  }

  // --- what the hold tells us -----------------------------------------------------------------------------------

  /** The engine has our claim in line, behind others. */
  waits(): void {
    for (const waiter of this.#waiters) this.#wait(waiter);
  }

  /** The hold serves nobody of ours any more: used up, lost, refused or downgraded. */
  detached(loss?: Loss): void {
    // Who has had no answer so far goes on to count from where it began.
    const askedAt = this.#hold?.answered ? this.line.realm.options.clock.now() : this.#askedAt;
    if (this.#hold?.answered) this.#failures = 0;
    this.#hold = undefined;
    if (loss?.reason === 'evicted') {
      this.#waiters.first?.reject(new LeaseLostError(this.line.name, loss));
    }
    if (this.#waiters.size === 0) return this.line.dissolved(this);
    const waits = this.#waiters.size > this.#tries;
    // Who only tries does not stand in line with the others.
    if (waits) this.#refuseTries();
    this.#stand(waits, askedAt);
  }

  #refuseTries(): void {
    if (this.#tries === 0) return;
    for (const waiter of this.#waiters) if (waiter.triesOnce) waiter.resolve(undefined);
  }

  refused(): void {
    this.#refuseTries();
    this.detached();
  }

  /** The engine could not be asked: those who would not wait for that give up. */
  failing(error: HoldfastError): void {
    this.#trouble = error;
    this.#answersBeforeTrouble = this.line.realm.answers;
    for (const waiter of this.#waiters) if (waiter.triesOnce) waiter.reject(unreachable(error));
    this.#failures += 1;
    // Never after a first failure: on a busy machine that may be our own slow start.
    if (!this.#patience && this.#failures > 1 && this.#waiters.size > 0) this.#losePatience();
  }

  /** Without a timeout of its own, a waiter gives up after one ttl without an answer. */
  #losePatience(): void {
    const { clock, ttlMs } = this.line.realm.options;
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
    this.reject(error, () => true);
    this.line.dissolved(this);
  }

  reject(error: HoldfastError, whom: (waiter: Waiter) => boolean): void {
    for (const waiter of [...this.#waiters]) if (whom(waiter)) waiter.reject(error);
  }

  // --- what waiters tell us -------------------------------------------------------------------------------------

  dropped(waiter: Waiter): void {
    this.line.realm.addPending(-1);
    this.line.settled(waiter);
    if (waiter.link) this.#waiters.remove(waiter.link);
    if (waiter.triesOnce) this.#tries -= 1;
    if (waiter.weight === ALL && !waiter.endsByItself) this.line.endlessWriters -= 1;
    if (this.#waiters.size > 0) return;
    this.#calm();
    this.#hold?.unwanted();
  }

  nearlyOver(): void {
    if (this.#hold?.answered) this.line.explanation.prepare();
  }

  timedOut(waiter: Waiter): void {
    if (waiter.triesOnce && this.#reached(waiter)) waiter.resolve(undefined);
    else if (this.#reached(waiter)) this.line.explanation.give(waiter, this);
    else waiter.reject(unreachable(this.#trouble));
  }

  /** Whether the lock was busy, as far as anybody can tell: the engine has answered since, or nothing says that it would not. */
  #reached({ answersBefore }: Waiter): boolean {
    const hold = this.#hold;
    if (this.#trouble && !isSilence(this.#trouble) && this.line.realm.answers === this.#answersBeforeTrouble)
      return false;
    if (this.line.realm.answers > answersBefore) return true;
    return hold !== undefined && hold.answered && !hold.validity.inJeopardy;
  }

  /** A reader may be let in beside others, so it waits only once the engine has said so. */
  #wait(waiter: Waiter): void {
    if (this.request.weight === ALL || waiter.wait || waiter.triesOnce) return;
    try {
      beginWait(waiter, this.line);
    } catch (error) {
      waiter.reject(error);
    }
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
