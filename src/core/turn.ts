import type { LineRef } from './engine.js';
import type { Loss } from './errors.js';
import { Floor } from './floor.js';
import type { Frame } from './reentrancy.js';

/** What a turn stands on: a claim in the engine's line, or a place on the floor of an outer turn. */
export interface Grip {
  /** False from the moment on at which somebody else may hold. Noticing that it is over may end the turn at once. */
  valid(): boolean;
  /** Not certain at the moment; a beat will tell. */
  readonly inJeopardy: boolean;
  readonly remainingMs: number;
  readonly line: LineRef;
  /** True, or false where the engine had lost it before. */
  giveBack(turn: Turn): Promise<boolean>;
  /** Only for a writer's turn. */
  downgrade(turn: Turn): Promise<Turn>;
  turnLost(turn: Turn, loss: Loss): void;
}

export type TurnState = 'held' | 'jeopardy' | 'lost' | 'released';

/** One user's hold of a lock, from grant to release. A lease is its public face. */
export class Turn {
  readonly token: bigint;
  readonly weight: number;
  /** The run that holds it, if one does. */
  frame: Frame | undefined;
  /** Told once, when the turn is lost. */
  onLost: ((loss: Loss) => void) | undefined;
  readonly #grip: Grip;
  #end: 'lost' | 'released' | undefined;
  #loss: Loss | undefined;
  #floor: Floor | undefined;
  /** Forfeited, and on its way back to the engine. */
  #returning: Promise<false> | undefined;

  constructor(token: bigint, weight: number, grip: Grip) {
    this.token = token;
    this.weight = weight;
    this.#grip = grip;
  }

  get held(): boolean {
    // valid() may find that validity is over and end this very turn.
    return this.#end === undefined && this.#grip.valid() && this.#end === undefined;
  }

  get state(): TurnState {
    const { held } = this;
    if (this.#end) return this.#end;
    return held && !this.#grip.inJeopardy ? 'held' : 'jeopardy';
  }

  get remainingMs(): number {
    return this.held ? this.#grip.remainingMs : 0;
  }

  get loss(): Loss | undefined {
    return this.#loss;
  }

  /** Where acquires inside this turn queue among themselves. */
  get floor(): Floor {
    this.#floor ??= new Floor(this, this.#grip);
    return this.#floor;
  }

  /** Gives it back once the turns inside it are done. False if it was lost; one that was forfeited is back by then. */
  release(): Promise<boolean> {
    if (!this.#close()) return this.#end === 'released' ? RELEASED : (this.#returning ?? LOST);
    return this.#floor ? this.#floor.close().then(() => this.#grip.giveBack(this)) : this.#grip.giveBack(this);
  }

  /** Write → read. Undefined if it was lost. The running frame, if there is one, goes on with the new turn. */
  async downgrade(): Promise<Turn | undefined> {
    if (!this.#close()) return undefined;
    await this.#floor?.close();
    const reader = await this.#grip.downgrade(this);
    this.frame?.continueWith(reader);
    return reader;
  }

  lose(loss: Loss): void {
    if (this.#loss) return;
    const released = this.#end === 'released';
    this.#end = loss.reason === 'released' ? 'released' : 'lost';
    this.#loss = loss;
    this.#floor?.lose(loss);
    if (released) return;
    this.#grip.turnLost(this, loss);
    this.onLost?.(loss);
  }

  /** Loses it by our own decision (maxHold) and gives it back. */
  forfeit(loss: Loss): void {
    if (this.#end) return;
    this.lose(loss);
    this.#returning = this.#grip.giveBack(this).then(() => false);
  }

  /** False if it is over already. In doubt is still ours: only an end decides. */
  #close(): boolean {
    this.#grip.valid();
    if (this.#end) return false;
    this.#end = 'released';
    return true;
  }
}

const RELEASED = Promise.resolve(true);
const LOST = Promise.resolve(false);
