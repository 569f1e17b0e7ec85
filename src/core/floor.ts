import type { Clock } from './clock.js';
import { beginWait } from './deadlock.js';
import type { LineRef } from './engine.js';
import { AcquireTimeoutError, DeadlockError, type HoldfastError, LeaseLostError, type Loss, quote } from './errors.js';
import { ALL, Line, type Spot } from './line.js';
import { isWorkOf, type Waited } from './reentrancy.js';
import { type Grip, Turn } from './turn.js';
import type { Validity } from './validity.js';
import type { Station, Waiter } from './waiter.js';

/** Where a wait on a floor is counted. */
export interface WaitingCount {
  /** Throws when too many wait already. */
  admit(): void;
  addPending(by: 1 | -1): void;
}

/**
 * Where acquires inside a held turn queue among themselves: re-entrant, without I/O, with the outer turn's token.
 * Siblings (`Promise.all` inside one holder) still exclude each other, by the same rule as in an engine's line.
 */
export class Floor implements Waited {
  readonly #outer: Turn;
  /** An item that is undefined stands for the floor before this one. */
  readonly #line: Line<Place | undefined>;
  readonly #before: Floor | undefined;
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
    return new Floor(this.#outer, this);
  }

  get name(): string {
    return this.#outer.line.name;
  }

  get busy(): boolean {
    return this.#line.size > 0;
  }

  get crowded(): boolean {
    return this.#line.size > 1;
  }

  *holders(): Iterable<Turn> {
    for (const { item, held } of this.#line) {
      if (!held) return;
      if (item) yield* item.turn.blockers();
      else yield* this.#before!.holders();
    }
  }

  enter(waiter: Waiter, count: WaitingCount): void {
    if (!this.#outer.open) throw this.#outer.lossError();
    if (waiter.weight > this.#outer.weight) throw upgrade(this.name);
    const fits = this.#line.fits(waiter.weight);
    if (!fits && waiter.triesOnce) return waiter.resolve(undefined);
    if (!fits) {
      count.admit();
      beginWait(waiter, this);
    }
    const place = new Place(this, this.#outer, waiter, count);
    place.spot = this.#line.enter(place, waiter.weight);
    if (place.spot.held) return waiter.resolve(place.turn);
    count.addPending(1);
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

  lose(loss: Loss): void {
    // From the tail, so that nobody is served because another before it gives up.
    const spots = [...this.#line].toReversed();
    for (const { item } of spots) item?.waiter.reject(new LeaseLostError(this.name, loss, this.#outer.hand.token));
    for (const spot of spots) {
      spot.item?.turn.lose(loss);
      this.#leave(spot);
    }
    this.#before?.lose(loss);
  }

  drain(error: HoldfastError, owner: object): void {
    for (const { item, held } of [...this.#line].toReversed()) {
      if (held) item?.turn.drain(error, owner);
      else if (item && !isWorkOf(owner, item.waiter.frame)) item.waiter.reject(error);
    }
    this.#before?.drain(error, owner);
  }

  lighten(spot: Spot<Place | undefined>): void {
    this.#outer.notice();
    for (const { item } of this.#line.lighten(spot, 1)) item!.waiter.resolve(item!.turn);
  }

  leave(place: Place): void {
    // Nobody is let in to what is over, though nobody has noticed that yet.
    this.#outer.notice();
    this.#leave(place.spot!);
  }

  #leave(spot: Spot<Place | undefined>): void {
    for (const { item } of this.#line.leave(spot)) item!.waiter.resolve(item!.turn);
    if (!this.busy) for (const resolve of this.#whenEmpty.splice(0)) resolve();
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

/** A turn's place on a floor. It is valid as long as what the outer turn stands on. */
class Place implements Grip, Station {
  readonly outer: Turn;
  readonly turn: Turn;
  readonly waiter: Waiter;
  spot: Spot<Place | undefined> | undefined;
  readonly #floor: Floor;
  readonly #count: WaitingCount;

  constructor(floor: Floor, outer: Turn, waiter: Waiter, count: WaitingCount) {
    this.#floor = floor;
    this.#count = count;
    this.outer = outer;
    this.waiter = waiter;
    this.turn = new Turn(this, waiter.weight, outer.hand.token, waiter.frame);
  }

  get line(): LineRef {
    return this.outer.line;
  }

  get waitedFor(): boolean {
    return this.#floor.crowded;
  }

  get clock(): Clock {
    return this.outer.clock;
  }

  get validity(): Validity {
    return this.outer.validity;
  }

  notice(): void {
    this.outer.notice();
  }

  dropped(): void {
    this.#count.addPending(-1);
    if (!this.spot!.held) this.#floor.leave(this);
  }

  nearlyOver(): void {
    // Nobody has to be asked who is in the way here.
  }

  timedOut(waiter: Waiter): void {
    waiter.reject(new AcquireTimeoutError(this.line.name, waiter.patience.timeoutMs!));
  }

  giveBack(): Promise<boolean> {
    this.#floor.leave(this);
    return Promise.resolve(true);
  }

  /** The floor is a matter of this process alone: what is held outside stays as it is, and so does the token. */
  readersToken(): bigint {
    return this.turn.hand.token;
  }

  lighten(): Promise<void> {
    this.#floor.lighten(this.spot!);
    return Promise.resolve();
  }

  lost(): void {
    // The turn that stands in the engine's line tells it once for all that are inside it.
  }
}
