import type { Timer } from './clock.js';
import { beginWait } from './deadlock.js';
import {
  type HoldfastError,
  isSilence,
  LeaseLostError,
  type Loss,
  named,
  unreachable,
  type Whereabouts,
} from './errors.js';
import type { Look } from './explanation.js';
import { Hold } from './hold.js';
import { ALL } from './line.js';
import type { AcquireRequest, LocalLine } from './local-line.js';
import { Queue } from './queue.js';
import type { Station, Waiter } from './waiter.js';

/** An engine is not called silent before it has taken this many times as long as the last time. */
const USUAL = 3;

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
  /** How many of them wait for as long as it takes. */
  #endless = 0;
  #hold: Hold | undefined;
  /** Since when we have been asking the engine without an answer for the current claim. */
  #askedAt = 0;
  /** How long the engine has taken to answer to a claim of ours. 0: it has not answered yet. */
  #answerMs = 0;
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

  get waitsEndlessly(): boolean {
    return this.#endless > 0;
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  /**
   * How one more could join: always before the grant, behind the others; after it readers only, at once, by the hold, while the
   * budget lasts.
   */
  admits({ weight, rw }: AcquireRequest): 'behind' | Hold | undefined {
    const own = this.request;
    const hold = this.#hold;
    if (weight !== own.weight || rw !== own.rw || !own.cohort || !hold) return undefined;
    if (!this.shared || !hold.granted) return 'behind';
    return hold.mayServe() ? hold : undefined;
  }

  add(waiter: Waiter): void {
    waiter.at = this;
    waiter.answersBefore = this.line.realm.answers;
    waiter.link = this.#waiters.push(waiter);
    if (waiter.triesOnce) this.#tries += 1;
    if (!waiter.endsByItself) this.#endless += 1;
    if (!this.#hold) this.#stand(!waiter.triesOnce, waiter.startedAt);
    else if (this.#hold.answered) this.#wait(waiter);
  }

  next(): Waiter | undefined {
    return this.#waiters.first;
  }

  /** How many stand before each of our waiters, ours included. */
  places({ places }: Look): [Waiter, number][] {
    const hold = this.#hold;
    if (hold?.claimId === undefined) return [];
    const ours = (places.get(hold.claimId) ?? places.size) + hold.turns.length;
    return [...this.#waiters].map((waiter, index) => [waiter, ours + index]);
  }

  // --- what the hold tells us -----------------------------------------------------------------------------------

  /** The engine has said at this time what became of our claim. */
  answered(now: number): void {
    this.#answerMs = now - this.#askedAt;
  }

  /** It has our claim in line, behind others or behind its guard. */
  waits(guarded: boolean): void {
    this.refuseTries(guarded);
    for (const waiter of this.#waiters) this.#wait(waiter);
  }

  /** The hold serves nobody of ours any more: used up, lost, refused or downgraded. */
  detached(loss?: Loss): void {
    const hold = this.#hold;
    this.#hold = undefined;
    if (loss?.reason === 'evicted') {
      this.#waiters.first?.reject(new LeaseLostError(this.line.name, loss));
    }
    if (this.#waiters.size === 0) return this.line.dissolved(this);
    const answered = hold?.answered === true;
    if (answered) this.#failures = 0;
    // Who has had no answer so far goes on to count from where it began.
    const askedAt = answered ? this.line.realm.options.clock.now() : this.#askedAt;
    const waits = this.#waiters.size > this.#tries;
    // Who only tries does not stand in line with the others.
    if (waits) this.refuseTries();
    this.#stand(waits, askedAt);
  }

  /** They do not wait: not for others, not for the guard, and not for those of ours before them. */
  refuseTries(guarded = false): void {
    if (this.#tries === 0) return;
    for (const waiter of this.#waiters) if (waiter.triesOnce) this.line.refuse(waiter, guarded);
  }

  refused(guarded: boolean): void {
    this.refuseTries(guarded);
    this.detached();
  }

  /** The engine could not be asked: those who would not wait for that give up. */
  failing(error: HoldfastError): void {
    // Silence after an error is of the same making, and says less.
    if (!this.#trouble || !isSilence(error)) {
      this.#trouble = error;
      this.#answersBeforeTrouble = this.line.realm.answers;
    }
    for (const waiter of this.#waiters) if (waiter.triesOnce) waiter.reject(this.#unreachable(error));
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
      if (leftMs <= 0) waiter.reject(this.#unreachable(this.#trouble));
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

  #unreachable(trouble: HoldfastError | undefined): HoldfastError {
    return unreachable(trouble, this.#where);
  }

  get #where(): Whereabouts {
    return { engine: this.line.realm.options.title, lock: this.line.name };
  }

  failed(error: HoldfastError): void {
    this.#hold = undefined;
    this.reject(error, () => true);
    this.line.dissolved(this);
  }

  reject(error: HoldfastError, whom: (waiter: Waiter) => boolean): void {
    for (const waiter of [...this.#waiters]) if (whom(waiter)) waiter.reject(named(error, this.#where));
  }

  // --- what waiters tell us -------------------------------------------------------------------------------------

  dropped(waiter: Waiter): void {
    this.line.realm.addPending(-1);
    this.line.settled(waiter);
    if (waiter.link) this.#waiters.remove(waiter.link);
    if (waiter.triesOnce) this.#tries -= 1;
    if (!waiter.endsByItself) this.#endless -= 1;
    if (this.#waiters.size > 0) return;
    this.#calm();
    this.#hold?.unwanted();
  }

  nearlyOver(waiter: Waiter): void {
    if (this.#hold?.answered) this.line.explanation.prepare(waiter);
  }

  timedOut(waiter: Waiter): void {
    if (waiter.triesOnce && this.#reached(waiter)) waiter.resolve(undefined);
    else if (this.#reached(waiter)) this.#explain(waiter);
    else waiter.reject(this.#unreachable(this.#trouble));
  }

  #explain(waiter: Waiter): void {
    const { guard } = this.line.realm;
    if (this.#hold?.guarded && guard.endsInMs !== undefined) waiter.reject(guard.error(this.line.name));
    else
      this.line.explanation.give(waiter, this, this.#mayBeUnheard(waiter) ? this.#unreachable(undefined) : undefined);
  }

  /** Whether its claim stood in line before it came, and the engine has been silent since for longer than it takes to answer. */
  #mayBeUnheard({ answersBefore, startedAt }: Waiter): boolean {
    const { answers, options } = this.line.realm;
    if (!options.listing || answers > answersBefore || !this.#hold?.answered || this.#hold.granted) return false;
    return options.clock.now() - startedAt >= this.#answerMs * USUAL;
  }

  /**
   * Whether the lock was busy, as far as anybody can tell: the engine has answered since, or nothing says that it would not. A
   * lock that is passed on is asked for again and again, so a short wait may see none of the answers.
   */
  #reached({ answersBefore, triesOnce }: Waiter): boolean {
    const hold = this.#hold;
    if (this.#trouble && !isSilence(this.#trouble) && this.line.realm.answers === this.#answersBeforeTrouble)
      return false;
    if (this.line.realm.answers > answersBefore) return true;
    if (hold?.answered) return !hold.ground.validity.inJeopardy;
    return !triesOnce && this.line.realm.options.clock.now() - this.#askedAt < this.#answerMs * USUAL;
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
    this.#hold = new Hold(this, wait);
    this.#hold.stand();
  }
}
