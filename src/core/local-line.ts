import { Cohort } from './cohort.js';
import { beginWait } from './deadlock.js';
import type { LineRef } from './engine.js';
import type { HoldfastError } from './errors.js';
import { Explanation } from './explanation.js';
import type { Hold } from './hold.js';
import { ALL } from './line.js';
import { Queue } from './queue.js';
import type { Realm } from './realm.js';
import type { Waited } from './reentrancy.js';
import type { ClaimRequest } from './standing.js';
import type { Turn } from './turn.js';
import type { Waiter } from './waiter.js';

export interface AcquireRequest extends Omit<ClaimRequest, 'wait'> {
  /** Whether the waiter may share a claim with others of this instance. */
  readonly cohort: boolean;
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
  readonly realm: Realm;
  #explanation: Explanation | undefined;
  endlessWaits = 0;
  readonly #holds = new Queue<Hold>();
  /** Those of them that the engine has granted. */
  #granted: Hold | undefined;
  /** Mostly there is one, or none. */
  #alsoGranted: Hold[] | undefined;
  #last: Cohort | undefined;

  constructor(ref: LineRef, key: string, realm: Realm) {
    this.ref = ref;
    this.key = key;
    this.realm = realm;
  }

  /** For those whose time is over. */
  get explanation(): Explanation {
    const { options } = this.realm;
    this.#explanation ??= new Explanation(options.clock, this.name, this.realm.guard, () => options.look(this.ref));
    return this.#explanation;
  }

  /** How many leases of ours are held in it, without those inside of others. */
  get held(): number {
    let count = 0;
    for (const { turns } of this.#allGranted()) for (const turn of turns) count += turn.isHeldByAnybody ? 1 : 0;
    return count;
  }

  get name(): string {
    return this.ref.name;
  }

  /** Only one that leaves too little blocks a waiter: else any of the others may serve it. */
  *holders(waiter: Waiter): Iterable<Turn> {
    const needed = this.#neededBy(waiter);
    for (const { excludesReaders, turns, capacity } of this.#allGranted())
      for (const turn of turns) if (capacity - (excludesReaders ? ALL : turn.weight) < needed) yield* turn.blockers();
  }

  /** Its own weight, or that of one of ours before it who wants more and will not go by itself: nobody passes a waiter. */
  #neededBy(waiter: Waiter): number {
    let needed = waiter.weight;
    if (needed === ALL) return needed;
    for (const hold of this.#holds) {
      if (hold.standsFor(waiter)) break;
      needed = Math.max(needed, hold.endlesslyWanted);
    }
    return needed;
  }

  carries(turn: Turn): boolean {
    return turn.line === this.ref && !turn.outer;
  }

  acquire(waiter: Waiter, request: AcquireRequest): void {
    if (waiter.triesOnce && request.cohort) {
      const inTheWay = this.#inTheWay(waiter.weight);
      if (inTheWay.some(({ granted, answered, guarded }) => granted || (answered && !guarded)))
        return this.refuse(waiter, false);
      // Of a claim that has no answer yet nobody knows whether it or only the engine's guard is in the way.
      if (inTheWay.length > 0 && inTheWay.every(({ answered }) => answered)) return this.refuse(waiter, true);
    }
    const last = this.#last;
    const place = request.cohort ? last?.admits(request) : undefined;
    // To look at the time may have ended all that stood here, and this line with it.
    if (last && this.realm.lines.get(this.key) !== this)
      return this.realm.line(this.ref, this.key).acquire(waiter, request);
    if (typeof place === 'object') return place.serve(waiter);
    // Who only tries does not wait, so it can't deadlock either.
    if (!waiter.triesOnce && waiter.weight === ALL) beginWait(waiter, this);
    this.realm.addPending(1);
    const cohort = last && place ? last : new Cohort(this, request);
    this.#last = cohort;
    cohort.add(waiter);
    waiter.watch(this.realm.options.clock, this.realm.tries);
  }

  drain(error: HoldfastError, owner: object): void {
    for (const hold of [...this.#holds]) hold.drain(error, owner);
  }

  close(error: HoldfastError): void {
    for (const hold of [...this.#holds]) hold.close(error);
  }

  // --- what holds and cohorts tell us ---------------------------------------------------------------------------

  began(hold: Hold): void {
    hold.link = this.#holds.push(hold);
  }

  granted(hold: Hold): void {
    if (this.#granted) (this.#alsoGranted ??= []).push(hold);
    else this.#granted = hold;
  }

  ended(hold: Hold): void {
    if (!hold.link) return;
    this.#holds.remove(hold.link);
    hold.link = undefined;
    this.#forgetGranted(hold);
    if (this.#holds.size === 0) this.realm.lines.delete(this.key);
  }

  *#allGranted(): Iterable<Hold> {
    if (this.#granted) yield this.#granted;
    if (this.#alsoGranted) yield* this.#alsoGranted;
  }

  #forgetGranted(hold: Hold): void {
    if (this.#granted === hold) {
      this.#granted = this.#alsoGranted?.pop();
      return;
    }
    const at = this.#alsoGranted?.indexOf(hold) ?? -1;
    if (at !== -1) this.#alsoGranted?.splice(at, 1);
  }

  settled(waiter: Waiter): void {
    this.#explanation?.forget(waiter);
  }

  dissolved(cohort: Cohort): void {
    if (this.#last === cohort) this.#last = undefined;
  }

  /** One that only tries has no lock: it is busy, or nobody gets any for a while. */
  refuse(waiter: Waiter, guarded: boolean): void {
    const { guard } = this.realm;
    if (guarded && guard.lately) waiter.reject(guard.error(this.name));
    else waiter.resolve(undefined);
  }

  /** Ours that hold it or wait for it in a way that excludes this weight: not to be had, and nobody passes a waiter. */
  #inTheWay(weight: number): Hold[] {
    const found: Hold[] = [];
    for (const hold of this.#holds) if (!hold.sharesWith(weight)) found.push(hold);
    return found;
  }
}
