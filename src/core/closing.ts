import type { Clock, Timer } from './clock.js';
import type { Frame } from './reentrancy.js';
import type { Turn } from './turn.js';

/** A user's function that works inside its locks. */
export interface Work {
  readonly frames: readonly Frame[];
  /** It is told at once that its instance closes, not only when the time is over: a leader. */
  readonly yields: boolean;
}

/**
 * How an instance that closes waits for the functions that work inside its locks: for so long at the most, and then it gives
 * their locks away. A function that closes its own instance and awaits that would wait for its own end, so it only waits for
 * the others; its locks are kept all the same.
 */
export class Closing {
  /** Every function has ended, or the time is over. */
  readonly drained: Promise<void>;
  /** The instance has ended. */
  readonly closed: Promise<void>;
  /** Every function has ended but for those that asked for it. */
  readonly othersDrained: Promise<void>;
  readonly #clock: Clock;
  readonly #working: ReadonlySet<Work>;
  readonly #closers = new Set<Frame>();
  #resolve!: { all: () => void; others: () => void };
  #endsAt = Number.POSITIVE_INFINITY;
  /** It keeps the process alive: else that would end under the functions that we wait for. */
  #timer: Timer | undefined;

  /** @param close ends the instance once `drained` has resolved. */
  constructor(clock: Clock, working: ReadonlySet<Work>, close: (closing: Closing) => Promise<void>) {
    this.#clock = clock;
    this.#working = working;
    const resolve: Partial<{ all: () => void; others: () => void }> = {};
    this.drained = new Promise((done) => (resolve.all = done));
    this.othersDrained = new Promise((done) => (resolve.others = done));
    this.#resolve = resolve as Required<typeof resolve>;
    this.closed = close(this);
  }

  /** The time is over, whether the timer has run or not. */
  get over(): boolean {
    return this.#clock.now() >= this.#endsAt;
  }

  /** Every call can only shorten it. */
  ask(drainMs: number, closer: Frame | undefined): void {
    if (closer) for (const frame of runsAround(closer)) this.#closers.add(frame);
    const endsAt = this.#clock.now() + drainMs;
    if (endsAt < this.#endsAt) {
      this.#endsAt = endsAt;
      this.#timer?.close();
      this.#timer = this.#clock.timer(drainMs, () => this.#end());
    }
    if (drainMs === 0) this.#end();
    else this.look();
  }

  /** A function has ended, or closes us itself. */
  look(): void {
    if (this.#working.size === 0) return this.#end();
    for (const { frames } of this.#working) if (!frames.some((frame) => this.#closers.has(frame))) return;
    this.#resolve.others();
  }

  #end(): void {
    this.#timer?.close();
    this.#resolve.all();
  }
}

/** The runs that this code is inside of, by its async context or because it was told by hand what it is inside of. */
function* runsAround(closer: Frame): Iterable<Frame> {
  for (const frame of closer.chain()) {
    yield frame;
    for (let turn: Turn | undefined = frame.turn; turn; turn = turn.outer) if (turn.frame) yield turn.frame;
  }
}
