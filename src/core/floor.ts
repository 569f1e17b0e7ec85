import type { Clock } from './clock.js';
import { beginWait } from './deadlock.js';
import type { LineRef } from './engine.js';
import {
  type AcquireTimeoutError,
  ClosedError,
  DeadlockError,
  type HoldfastError,
  LeaseLostError,
  type Loss,
  quote,
} from './errors.js';
import { ALL, Line, type Spot } from './line.js';
import { isWorkOf, type Waited } from './reentrancy.js';
import { type Grip, type Ground, Turn } from './turn.js';
import type { Station, Waiter } from './waiter.js';

/** What whoever waits on a floor has outside of it. */
export interface Outside {
  /** Throws when too many wait already. */
  admit(): void;
  addPending(by: 1 | -1): void;
  /** What is said to whoever has waited for so long. */
  busy(timeoutMs: number): Promise<AcquireTimeoutError>;
  /** Takes the real lock instead. Absent where the caller has said by hand what it wants to be inside of. */
  readonly takeRealLock?: () => void;
}

/**
 * Where acquires inside a held turn queue among themselves: re-entrant, without I/O, with the outer turn's token.
 * Siblings (`Promise.all` inside one holder) still exclude each other, by the same rule as in an engine's line.
 */
export class Floor implements Waited {
  endlessWaits = 0;
  readonly #outer: Turn;
  /** An item that is undefined stands for the floor before this one. */
  readonly #line: Line<FloorPlace | undefined>;
  readonly #before: Floor | undefined;
  #next: Floor | undefined;
  readonly #whenEmpty: (() => void)[] = [];

  /** @param before see `next` */
  constructor(outer: Turn, before?: Floor) {
    this.#outer = outer;
    this.#before = before;
    // Readers inside a read lock share it; permits inside a semaphore share those of the outer turn.
    this.#line = new Line(outer.line.kind === 'lock' ? ALL : outer.weight);
    if (!before) return;
    const spot = this.#line.enter(undefined, ALL);
    void before.emptied().then(() => this.#leave(spot));
  }

  /** That of the same turn from now on. Until this one is empty nobody gets in there. */
  next(): Floor {
    this.#next = new Floor(this.#outer, this);
    return this.#next;
  }

  get name(): string {
    return this.#outer.line.name;
  }

  get busy(): boolean {
    return this.#line.size > 0;
  }

  get waitedFor(): boolean {
    return this.endlessWaits > 0 || (this.#next?.waitedFor ?? false);
  }

  /** Only one that leaves too little blocks a waiter: else any of the others may serve it. */
  *holders(waiter: Waiter): Iterable<Turn> {
    if (this.#before) for (const turn of this.#before.occupants()) yield* turn.blockers();
    const needed = this.#neededBy(waiter);
    for (const { item, weight } of this.#line)
      if (item?.turn && this.#line.capacity - weight < needed) yield* item.turn.blockers();
  }

  /** Its own weight, or that of one before it who wants more and will not go by itself: nobody passes a waiter. */
  #neededBy(waiter: Waiter): number {
    let needed = waiter.weight;
    for (const { item, held, weight } of this.#line) {
      if (item?.waiter === waiter) break;
      if (item && !held && !item.waiter.endsByItself) needed = Math.max(needed, weight);
    }
    return needed;
  }

  carries(turn: Turn): boolean {
    return turn.outer === this.#outer;
  }

  /** The turns that are inside. */
  *occupants(): Iterable<Turn> {
    for (let floor: Floor | undefined = this; floor; floor = floor.#before)
      for (const { item } of floor.#line) if (item?.turn) yield item.turn;
  }

  enter(waiter: Waiter, outside: Outside): void {
    if (!this.#outer.held) throw this.#outer.lossError();
    if (waiter.weight > this.#outer.weight) throw upgrade(this.name);
    const fits = this.#line.fits(waiter.weight);
    if (!fits && waiter.triesOnce) return waiter.resolve(undefined);
    if (!fits) {
      outside.admit();
      beginWait(waiter, this);
    }
    const place = new FloorPlace(this, this.#line, this.#outer, waiter, outside);
    // Time goes on: it may be over by now.
    if (place.spot.held) return this.#letIn([place.spot]);
    outside.addPending(1);
    waiter.at = place;
    waiter.watch(this.#outer.clock, undefined);
  }

  /** Resolves when everything inside is done. */
  emptied(): Promise<void> {
    if (!this.busy) return Promise.resolve();
    return new Promise((resolve) => this.#whenEmpty.push(resolve));
  }

  /** The outer turn becomes a reader's: who waits to write inside it would wait for ever. */
  refuseWriters(): void {
    for (const { item, held, weight } of [...this.#line].toReversed())
      if (!held && weight > 1) item?.waiter.reject(upgrade(this.name));
  }

  /** The outer turn is being given back: nobody new gets in. Those who wait go to the real lock, in their order. */
  expel(): void {
    this.#before?.expel();
    const waiting = [...this.#line].flatMap(({ held, item }) => (item && !held ? [item] : []));
    // All of them leave, from the tail on, before the first goes on: that may call back into us.
    for (const place of waiting.toReversed()) {
      this.#leave(place.spot);
      place.left();
    }
    for (const place of waiting) place.goOn();
  }

  /** The outer turn is over, and so are those inside. */
  evacuate(loss: Loss): void {
    const { token } = this.#outer.hand;
    // From the tail, so that nobody is served because another before it gives up.
    const spots = [...this.#line].toReversed();
    // Only the end of an instance gives a turn back under those inside it. To each its own, with the frames of its caller.
    for (const { item } of spots)
      item?.waiter.reject(loss.reason === 'released' ? new ClosedError() : new LeaseLostError(this.name, loss, token));
    for (const spot of spots) this.#leave(spot);
    this.#before?.evacuate(loss);
  }

  drain(error: HoldfastError, owner: object): void {
    for (const { item, held } of [...this.#line].toReversed())
      if (!held && item && !isWorkOf(owner, item.waiter.frame)) item.waiter.reject(error);
    this.#before?.drain(error, owner);
  }

  lighten(spot: Spot<FloorPlace | undefined>): void {
    this.#outer.notice();
    this.#letIn(this.#line.lighten(spot, 1));
  }

  leave(place: FloorPlace): void {
    // Nobody is let in to what is over, though nobody has noticed that yet.
    this.#outer.notice();
    this.#leave(place.spot);
  }

  #leave(spot: Spot<FloorPlace | undefined>): void {
    this.#letIn(this.#line.leave(spot));
    if (!this.busy) for (const resolve of this.#whenEmpty.splice(0)) resolve();
  }

  /** Whoever can't be let in goes, and those behind it are next. */
  #letIn(admitted: readonly Spot<FloorPlace | undefined>[]): void {
    const next = [...admitted];
    for (const spot of next) if (spot.item?.grant() === false) next.push(...this.#line.leave(spot));
  }
}

/** The floor of this turn, made when it is first needed. */
export function floorOf(turn: Turn): Floor {
  turn.floor ??= new Floor(turn);
  return turn.floor;
}

function upgrade(name: string): DeadlockError {
  return new DeadlockError(
    `${quote(name)} can't be upgraded: this code already holds it with less (a read lock, or fewer permits), and two ` +
      'that upgrade would wait for each other for ever. Take the stronger lock first; a write lock can be downgraded.',
    [name],
  );
}

/** A place on a floor. Its turn is valid as long as what the outer turn stands on. */
class FloorPlace implements Grip, Station {
  readonly outer: Turn;
  readonly waiter: Waiter;
  readonly line: LineRef;
  readonly clock: Clock;
  readonly ground: Ground;
  readonly spot: Spot<FloorPlace | undefined>;
  /** Made when it is let in: what it holds is what the outer turn holds then. */
  turn: Turn | undefined;
  readonly #floor: Floor;
  readonly #outside: Outside;

  constructor(floor: Floor, line: Line<FloorPlace | undefined>, outer: Turn, waiter: Waiter, outside: Outside) {
    this.#floor = floor;
    this.#outside = outside;
    this.outer = outer;
    this.waiter = waiter;
    this.line = outer.line;
    this.clock = outer.clock;
    this.ground = outer.ground;
    this.spot = line.enter(this, waiter.weight);
  }

  get waitedFor(): boolean {
    return this.#floor.waitedFor;
  }

  /** False: the machine may have been suspended, so nobody is let in before the engine has said that the lock is still ours. */
  grant(): boolean {
    if (this.outer.valid) {
      this.turn = new Turn(this, this.waiter.weight, this.outer.hand.token, this.waiter.frame);
      this.waiter.resolve(this.turn);
      return true;
    }
    this.waiter.reject(this.outer.invalidError());
    return false;
  }

  /** It stands on no floor any more. */
  left(): void {
    this.#outside.addPending(-1);
    this.waiter.at = undefined;
  }

  goOn(): void {
    if (this.#outside.takeRealLock) this.waiter.goElsewhere(this.#outside.takeRealLock);
    else this.waiter.reject(this.outer.lossError());
  }

  dropped(): void {
    this.#outside.addPending(-1);
    if (!this.spot.held) this.#floor.leave(this);
  }

  nearlyOver(): void {
    // Whoever is in the way is of this process, which has no need to hurry.
  }

  timedOut(waiter: Waiter): void {
    void this.#outside.busy(waiter.timeoutMs).then((error) => waiter.reject(error));
  }

  giveBack(): Promise<boolean> {
    this.#floor.leave(this);
    return Promise.resolve(true);
  }

  /** The floor is a matter of this process alone: what is held outside stays as it is, and so does the token. */
  readersToken({ hand }: Turn): bigint {
    return hand.token;
  }

  lighten(): Promise<void> {
    this.#floor.lighten(this.spot);
    return Promise.resolve();
  }
}
