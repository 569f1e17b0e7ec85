import type { Clock } from './clock.js';
import { beginWait } from './deadlock.js';
import { AcquireTimeoutError, DeadlockError, LeaseLostError, type Loss, quote } from './errors.js';
import type { LineRef } from './engine.js';
import { ALL, Line, type Spot } from './line.js';
import type { Frame, Waited } from './reentrancy.js';
import { type Grip, Turn } from './turn.js';
import type { Station, Waiter } from './waiter.js';

/**
 * Where acquires inside a held turn queue among themselves: re-entrant, without I/O, with the outer turn's token.
 * Siblings (`Promise.all` inside one holder) still exclude each other, by the same rule as in an engine's line.
 */
export class Floor implements Waited {
  readonly #outer: Turn;
  readonly #ground: Grip;
  readonly #line: Line<FloorPlace>;
  #closed: Promise<void> | undefined;
  #emptied: (() => void) | undefined;

  constructor(outer: Turn, ground: Grip) {
    this.#outer = outer;
    this.#ground = ground;
    // Readers inside a read lock share it; permits inside a semaphore share those of the outer turn.
    this.#line = new Line(ground.line.kind === 'lock' ? ALL : outer.weight);
  }

  get name(): string {
    return this.#ground.line.name;
  }

  holderFrames(): Iterable<Frame> {
    const frames: Frame[] = [];
    for (const { item, held } of this.#line) if (held && item.turn.frame) frames.push(item.turn.frame);
    return frames;
  }

  enter(waiter: Waiter, clock: Clock): void {
    this.#refuse(waiter);
    const fits = this.#line.fits(waiter.weight);
    if (!fits && waiter.triesOnce) return waiter.resolve(undefined);
    if (!fits) beginWait(waiter, this);
    const place = new FloorPlace(this, this.#outer, this.#ground, waiter);
    place.spot = this.#line.enter(place, waiter.weight);
    if (place.spot.held) return waiter.resolve(place.turn);
    waiter.at = place;
    waiter.watch(clock);
  }

  lighten(place: FloorPlace, weight: number): void {
    for (const { item } of this.#line.lighten(place.spot!, weight)) item.waiter.resolve(item.turn);
  }

  leave(place: FloorPlace): void {
    for (const { item } of this.#line.leave(place.spot!)) item.waiter.resolve(item.turn);
    if (this.#line.size === 0) this.#emptied?.();
  }

  /** Resolves when everything inside is done. Frames are closed before, so nothing new comes in. */
  close(): Promise<void> {
    this.#closed ??= new Promise((resolve) => {
      this.#emptied = resolve;
      if (this.#line.size === 0) resolve();
    });
    return this.#closed;
  }

  lose(loss: Loss): void {
    // From the tail, so that nobody is served because another before it gives up.
    const places = [...this.#line].map(({ item }) => item).toReversed();
    for (const { waiter } of places) waiter.reject(new LeaseLostError(this.name, loss, this.#outer.token));
    for (const place of places) {
      place.turn.lose(loss);
      this.leave(place);
    }
  }

  #refuse(waiter: Waiter): void {
    if (this.#outer.state === 'lost') throw new LeaseLostError(this.name, this.#outer.loss!, this.#outer.token);
    if (waiter.weight <= this.#outer.weight) return;
    throw new DeadlockError(
      `${quote(this.name)} can't be upgraded: this code already holds it with less (a read lock, or fewer permits), and two ` +
        'that upgrade would wait for each other for ever. Take the stronger lock first; a write lock can be downgraded.',
      [this.name],
    );
  }
}

/** A turn's place on a floor. It is valid as long as what the outer turn stands on. */
class FloorPlace implements Grip, Station {
  turn: Turn;
  readonly waiter: Waiter;
  spot: Spot<FloorPlace> | undefined;
  readonly #floor: Floor;
  readonly #ground: Grip;

  constructor(floor: Floor, outer: Turn, ground: Grip, waiter: Waiter) {
    this.#floor = floor;
    this.#ground = ground;
    this.waiter = waiter;
    this.turn = new Turn(outer.token, waiter.weight, this);
  }

  get line(): LineRef {
    return this.#ground.line;
  }

  valid(): boolean {
    return this.#ground.valid();
  }

  get inJeopardy(): boolean {
    return this.#ground.inJeopardy;
  }

  get remainingMs(): number {
    return this.#ground.remainingMs;
  }

  dropped(): void {
    if (!this.spot!.held) this.#floor.leave(this);
  }

  timedOut(waiter: Waiter): void {
    waiter.reject(new AcquireTimeoutError(this.line.name, waiter.patience.timeoutMs!));
  }

  giveBack(): Promise<boolean> {
    this.#floor.leave(this);
    return Promise.resolve(true);
  }

  /** The floor is a matter of this process alone: what is held outside stays as it is, and so does the token. */
  downgrade(): Promise<Turn> {
    this.turn = new Turn(this.turn.token, 1, this);
    this.#floor.lighten(this, 1);
    return Promise.resolve(this.turn);
  }

  turnLost(): void {
    // The turn that stands in the engine's line tells it once for all that are inside it.
  }
}
