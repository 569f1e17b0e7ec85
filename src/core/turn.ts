import type { Clock, Timer } from './clock.js';
import { beginEmptying } from './deadlock.js';
import type { LineRef } from './engine.js';
import { ClosedError, DeadlockError, type HoldfastError, LeaseLostError, type Loss, quote } from './errors.js';
import type { Floor } from './floor.js';
import { ALL } from './line.js';
import { currentFrame, type Frame, isWorkOf, runsInside } from './reentrancy.js';
import { publishLost } from './telemetry.js';
import type { Validity } from './validity.js';

/** What a turn stands on: a claim in the engine's line, or a place on the floor of an outer turn. */
export interface Grip {
  readonly line: LineRef;
  readonly clock: Clock;
  /** The turn that it is inside of. Undefined for one that stands in the engine's line. */
  readonly outer: Turn | undefined;
  /** What everything inside the outermost turn stands on. */
  readonly ground: Ground;
  /** Whether code inside a run waits where it stands. */
  readonly waitedFor: boolean;
  /** True, or false where the engine had lost it before. */
  giveBack(turn: Turn): Promise<boolean>;
  /** Write → read: the token that it has from now on. */
  readersToken(turn: Turn): bigint;
  /** Resolves when others can read beside it. */
  lighten(): Promise<void>;
}

/** A session. */
export interface Ground {
  readonly validity: Validity;
  /** Acts on an end of the session that the clock knows of and nobody has seen yet. */
  notice(): unknown;
}

export type TurnState = 'held' | 'jeopardy' | 'lost' | 'released';

/** As what a turn is held, until a downgrade: a lease is good for one hand. */
export interface Hand {
  readonly token: bigint;
  readonly mode: 'read' | 'write';
}

/**
 * One user's hold of a lock, from its grant until it is given back. It is the one place that knows who is inside, until
 * when, and as what:
 *
 *     open ──▶ closing ──▶ over
 *       └──────── lost ──────▲
 *
 * - *Who*: while it is open, acquires of the same lock may come inside, onto its floor. Once it is closing nobody new does,
 *   and it is given back when those inside are done.
 * - *Until when*: for as long as the session is valid, and until an end of its own by the clock (`maxHold`). To read this
 *   changes nothing; `notice` is the step that acts on it.
 * - *As what*: its hand. A downgrade changes it at once, so whoever comes inside from then on is inside a reader.
 */
export class Turn {
  /** The run that holds it, if one does. */
  frame: Frame | undefined;
  /** The run in which it was asked for, if there was one: that work counts on it. */
  readonly askedIn: Frame | undefined;
  /** Where acquires inside this turn queue among themselves, once there is one: see `floorOf`. */
  floor: Floor | undefined;
  /** Called when the turn is lost, unless it was released before. */
  onLost: ((loss: Loss) => void) | undefined;
  /** Called after `onLost` when somebody evicts it. Resolves when what was done under it has stopped. */
  onEvicted: (() => Promise<unknown>) | undefined;
  readonly clock: Clock;
  readonly validity: Validity;
  readonly #grip: Grip;
  /** Private: a turn is told to those who listen, and a session's id is a secret. */
  readonly #ground: Ground;
  #state: 'open' | 'closing' | 'over' = 'open';
  #loss: Loss | undefined;
  /** Whoever held it has given it back: what happens to it later is a matter of those inside. */
  #released = false;
  #weight: number;
  #hand: Hand;
  #endsAt: number;
  #endTimer: Timer | undefined;
  #givenBack: Promise<boolean> | undefined;
  #onEnd: (() => void) | undefined;

  constructor(grip: Grip, weight: number, token: bigint, askedIn?: Frame) {
    this.#grip = grip;
    this.clock = grip.clock;
    this.#ground = grip.ground;
    this.validity = this.#ground.validity;
    this.#weight = weight;
    this.askedIn = askedIn;
    // Whoever is inside another turn holds what that one holds, and no longer than that one.
    this.#hand = grip.outer?.hand ?? { token, mode: weight === ALL ? 'write' : 'read' };
    this.#endsAt = grip.outer?.endsAt ?? Number.POSITIVE_INFINITY;
  }

  get line(): LineRef {
    return this.#grip.line;
  }

  get outer(): Turn | undefined {
    return this.#grip.outer;
  }

  get ground(): Ground {
    return this.#ground;
  }

  get weight(): number {
    return this.#weight;
  }

  get hand(): Hand {
    return this.#hand;
  }

  // --- until when: to read this changes nothing ---------------------------------------------------------------------

  get endsAt(): number {
    return this.#endsAt;
  }

  get held(): boolean {
    return this.#state === 'open' && this.valid;
  }

  /** Whether what is inside may go on, also where whoever held it has given it back already. */
  get valid(): boolean {
    return this.#state !== 'over' && !this.#hasReachedEnd() && this.validity.valid;
  }

  /** Why it is over, whether somebody has noticed that already or not. */
  get loss(): Loss | undefined {
    if (this.#loss || this.#state !== 'open') return this.#loss;
    if (this.#hasReachedEnd()) return { reason: 'maxHold' };
    return this.validity.expired ? { reason: 'expired' } : undefined;
  }

  /** Whether whoever held it has given it back. */
  get released(): boolean {
    return this.#released;
  }

  get state(): TurnState {
    const { loss } = this;
    if (this.#released || loss?.reason === 'released') return 'released';
    if (loss) return 'lost';
    return this.held && !this.validity.inJeopardy ? 'held' : 'jeopardy';
  }

  get remainingMs(): number {
    return this.held ? Math.min(this.#endsAt - this.clock.now(), this.validity.remainingMs) : 0;
  }

  // --- who is inside ------------------------------------------------------------------------------------------------

  /** Whether somebody may come inside. */
  get open(): boolean {
    return this.#state === 'open';
  }

  /** It is lost, or given back. */
  get over(): boolean {
    return this.#state === 'over';
  }

  /** The turns that must end before this one does: itself, unless it is only kept for those inside, and those. */
  *blockers(): Iterable<Turn> {
    for (const turn of this.#family()) if (!turn.over && !turn.released) yield turn;
  }

  /** By whoever has it, or by somebody inside for whom it is kept. */
  get isHeldByAnybody(): boolean {
    return this.held || (this.floor !== undefined && this.#family().some(({ held }) => held));
  }

  /** Itself and all that are inside it, the outer before the inner. Runs may be nested deeper than the stack. */
  #family(): readonly Turn[] {
    const family: Turn[] = [this];
    for (const { floor } of family) if (floor) for (const turn of floor.occupants()) family.push(turn);
    return family;
  }

  get waitedFor(): boolean {
    return this.#grip.waitedFor;
  }

  /** Acts on what the clock says: what has ended is lost now, whether a timer has run or not. */
  notice(): void {
    this.#ground.notice();
    if (this.over || !this.#hasReachedEnd()) return;
    // Whoever is inside another turn ends no later than that one, and is lost with it.
    let outermost: Turn = this;
    for (let turn = this.outer; turn; turn = turn.outer) if (!turn.over && turn.#hasReachedEnd()) outermost = turn;
    outermost.forfeit({ reason: 'maxHold' });
  }

  /** It ends after so long at the latest, with all that is inside. */
  endAfter(ms: number): void {
    const endsAt = this.clock.now() + ms;
    if (endsAt >= this.#endsAt) return;
    this.#endsAt = endsAt;
    this.#watchEnd();
  }

  #hasReachedEnd(): boolean {
    return this.#endsAt !== Number.POSITIVE_INFINITY && this.clock.now() >= this.#endsAt;
  }

  #watchEnd(): void {
    this.#endTimer?.close();
    this.#endTimer = this.clock.timer(Math.max(1, this.#endsAt - this.clock.now()), () => {
      this.notice();
      // Timers may be early by a moment.
      if (this.#state !== 'over') this.#watchEnd();
    });
    this.#endTimer.unref();
  }

  // --- how it ends --------------------------------------------------------------------------------------------------

  /** Lets nobody new in, and gives it back when those inside are done. Resolves when that is so; false if it was lost. */
  close(): Promise<boolean> {
    this.notice();
    if (this.#state === 'over') return this.#loss?.reason === 'released' ? RELEASED : (this.#givenBack ?? LOST);
    if (this.#state === 'open') this.#released = true;
    this.#state = 'closing';
    this.#givenBack ??= this.floor?.busy ? this.floor.emptied().then(() => this.#giveBack()) : this.#giveBack();
    return this.#givenBack;
  }

  /**
   * The same at the end of a run. The code that called it waits for those inside, unless they wait for that code: then they are
   * left to themselves.
   */
  closeFor(caller: Frame | undefined): Promise<boolean> {
    const givenBack = this.close();
    if (!this.floor?.busy) return givenBack;
    try {
      const emptying = beginEmptying(this.floor, caller);
      return givenBack.finally(() => emptying?.end());
    } catch {
      return RELEASED;
    }
  }

  /**
   * The same without waiting for those inside, of whom the caller may be one. Whoever still waits to come inside is told to take
   * the real lock; at the end of a run they are part of what was begun inside it.
   */
  release(): Promise<boolean> {
    const givenBack = this.close();
    this.floor?.expel();
    return this.#state === 'closing' ? RELEASED : givenBack;
  }

  /**
   * Write → read. From the call on whoever comes inside is inside a reader. Resolves when others can read beside it, and
   * rejects if it was lost before. A run that ends meanwhile gives back what is the reader's by then.
   */
  async downgrade(): Promise<Hand> {
    this.notice();
    // Not where it is only in doubt: whoever is told of a loss releases nothing, and it may be held after all.
    if (!this.open) throw this.lossError();
    if (runsInside(this)) throw downgradedFromInside(this.line.name);
    const writers = this.floor;
    const emptying = writers?.busy ? beginEmptying(writers, currentFrame()) : undefined;
    writers?.refuseWriters();
    this.#weight = 1;
    const reader: Hand = { token: this.#grip.readersToken(this), mode: this.outer ? this.#hand.mode : 'read' };
    this.#hand = reader;
    this.floor = writers?.busy ? writers.next() : undefined;
    this.onLost = undefined;
    this.onEvicted = undefined;
    if (writers?.busy) await writers.emptied();
    emptying?.end();
    // A loss is told at once, though the engine may not answer.
    if (this.open) await Promise.race([this.#grip.lighten(), new Promise<void>((lost) => (this.#onEnd = lost))]);
    this.notice();
    if (this.#loss) throw new LeaseLostError(this.line.name, this.#loss, reader.token);
    return reader;
  }

  /**
   * The engine has lost it, or will when the session ends: there is nothing to give back.
   * @returns what must have stopped before an evicted claim leaves, if there is anything.
   */
  lose(loss: Loss): Promise<unknown> | undefined {
    if (this.over) return undefined;
    const family = this.#family().filter((turn) => !turn.over);
    const outermost = family.find(({ open }) => open);
    const stopping = family.filter(({ open, released, frame }) => open || (!released && frame?.works));
    const told = family.map((turn) => turn.#end(loss));
    for (const { floor } of family) floor?.evacuate(loss);
    // The end of an instance is not a loss.
    if (outermost && loss.reason !== 'released') outermost.#publish(loss);
    // Those inside first.
    for (const tell of told.toReversed()) tell();
    if (loss.reason !== 'evicted') return undefined;
    // Also of a leader whose instance closes: its function may work still.
    const stopped = stopping.flatMap(({ onEvicted }) => onEvicted?.() ?? []);
    return stopped.length > 0 ? Promise.all(stopped) : undefined;
  }

  #end(loss: Loss): () => void {
    const told = this.#tell(loss);
    this.#state = 'over';
    this.#endTimer?.close();
    this.#onEnd?.();
    return told;
  }

  /** Loses it by our own decision and gives it back. */
  forfeit(loss: Loss): void {
    if (this.#state === 'over') return;
    // Nobody waits for what stops: the decision was ours.
    this.lose(loss)?.catch(() => {});
    this.#givenBack = this.#grip.giveBack(this).then(() => false);
  }

  /** It is over for whoever holds it, but those inside may end their work: it is kept until `close`. */
  revoke(loss: Loss): void {
    if (this.#state !== 'open') return;
    const told = this.#tell(loss);
    this.#state = 'closing';
    told();
  }

  /** The instance ends: what no function works in any more is given back, here and inside. */
  drain(error: HoldfastError, owner: object): void {
    const family = this.#family();
    const idle = family.filter(({ frame, askedIn }) => !frame?.works && !isWorkOf(owner, askedIn));
    for (const turn of idle) turn.revoke({ reason: 'released' });
    for (const { floor } of family) floor?.drain(error, owner);
    // Functions inside it may end: it is given back when they have.
    for (const turn of idle.toReversed()) void turn.close();
  }

  lossError(): LeaseLostError {
    if (!this.#released && (this.open || this.loss)) return this.invalidError();
    return new LeaseLostError(this.line.name, { reason: 'released' }, this.#hand.token);
  }

  /** Why it is not `valid`. */
  invalidError(): LeaseLostError {
    const loss: Loss = this.loss ?? { reason: 'expired', detail: IN_DOUBT };
    return new LeaseLostError(this.line.name, loss, this.#hand.token);
  }

  /** Why it was never handed out: only the end of its instance gives back what nobody has got yet. */
  undeliveredError(): HoldfastError {
    return this.state === 'released' ? new ClosedError() : this.lossError();
  }

  /** What is to be told once the state has changed: a listener may call back into us. */
  #tell(loss: Loss): () => void {
    this.#loss ??= loss;
    if (this.#state !== 'open') return () => {};
    return () => this.onLost?.(loss);
  }

  /** Once for all that are inside. */
  #publish(loss: Loss): void {
    const { name, kind } = this.line;
    publishLost({ name, kind, token: this.#hand.token, loss });
  }

  #giveBack(): Promise<boolean> {
    if (this.#state === 'over') return LOST;
    this.#state = 'over';
    this.#endTimer?.close();
    return this.#grip.giveBack(this);
  }
}

const IN_DOUBT = 'the machine may have been suspended; the next beat will tell';
const RELEASED = Promise.resolve(true);
const LOST = Promise.resolve(false);

function downgradedFromInside(name: string): DeadlockError {
  return new DeadlockError(
    `${quote(name)} can't be downgraded by code inside it, for which it would have to wait. Downgrade the inner lease, or downgrade ` +
      'later.',
    [name],
  );
}
