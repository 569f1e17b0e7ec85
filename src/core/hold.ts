import type { Clock } from './clock.js';
import type { Cohort } from './cohort.js';
import type { LineRef } from './engine.js';
import type { HoldfastError, Loss } from './errors.js';
import type { KeptSession } from './kept-session.js';
import { ALL } from './line.js';
import type { LocalLine } from './local-line.js';
import type { Link } from './queue.js';
import { isWorkOf } from './reentrancy.js';
import { Standing, type StandingEvents } from './standing.js';
import { usersToken } from './token.js';
import { type Grip, Turn } from './turn.js';
import type { Waiter } from './waiter.js';

/** How long an instance may pass a lock among its own waiters before it goes to the back of the engine's line. */
const COHORT_TURNS = 64;
const COHORT_MS = 50;

/**
 * One claim of a cohort in the engine's line, and the turns that are made of it:
 *
 *     stand ──▶ granted ──▶ turn 0, turn 1, … ──▶ retired: left, refused or lost
 *
 * Writers have their turns one after the other, without I/O in between, until turns or time are used up; readers have
 * them together. A hand-over needs no engine, so it must not happen once validity has ended: another may hold by then.
 */
export class Hold implements StandingEvents, Grip {
  /** At most as many as a cohort has turns. */
  readonly turns: Turn[] = [];
  readonly clock: Clock;
  /** Its place among the holds of the local line. */
  link: Link<Hold> | undefined;
  readonly #line: LocalLine;
  /** Undefined once the cohort has gone on to another hold. */
  #cohort: Cohort | undefined;
  #weight: number;
  readonly #standing: Standing;
  #token = 0n;
  #served = 0;
  #lightening = false;
  /** It does not wait in the engine's line: held at once, or refused. */
  readonly #tries: boolean;
  /** It has waited in the engine's line. */
  #waits = false;
  #grantedAt: number | undefined;
  /** Nothing but the engine's guard was in the way when it entered. */
  guarded = false;

  /** @param wait see Claim */
  constructor(cohort: Cohort, wait: boolean) {
    this.#cohort = cohort;
    this.#line = cohort.line;
    this.clock = cohort.line.realm.options.clock;
    this.#tries = !wait;
    // Field by field: this is done for every lock, and a spread costs more than all of the rest.
    const { line, weight, capacity, note, rw } = cohort.request;
    this.#weight = weight;
    this.#standing = new Standing({ line, weight, capacity, wait, note, rw }, this);
  }

  get line(): LineRef {
    return this.#line.ref;
  }

  get exclusive(): boolean {
    return this.#weight === ALL;
  }

  /** Also while the engine does not know yet that it was downgraded. */
  get excludesReaders(): boolean {
    return this.exclusive || this.#lightening;
  }

  get capacity(): number {
    return this.#standing.request.capacity;
  }

  standsFor(waiter: Waiter): boolean {
    return this.#cohort !== undefined && this.#cohort === waiter.at;
  }

  /** What those behind it want and will wait for as long as it takes. */
  get endlesslyWanted(): number {
    return this.#cohort?.waitsEndlessly ? this.#weight : 0;
  }

  get granted(): boolean {
    return this.#grantedAt !== undefined;
  }

  /** Whether the engine has acknowledged the claim. */
  get answered(): boolean {
    return this.#standing.settledAtBeat !== undefined;
  }

  get claimId(): string | undefined {
    return this.#standing.id;
  }

  /** Only once its cohort knows it: an engine may grant it, or end the session, before its enter has returned. */
  stand(): void {
    this.#line.began(this);
    this.#line.realm.stand(this.#standing);
  }

  /** Whether another waiter of the cohort may have a turn without the engine being asked. */
  mayServe(): boolean {
    if (!this.#cohort?.request.cohort || this.#grantedAt === undefined || !this.#standing.held) return false;
    const ageMs = this.clock.now() - this.#grantedAt;
    return this.#served < COHORT_TURNS && ageMs < COHORT_MS && this.#standing.session.sure();
  }

  /** Whether one that only tries has a chance beside it: readers do, unless it stands and waits. */
  sharesWith(weight: number): boolean {
    return (this.granted || this.#tries) && this.#weight < ALL && weight < ALL;
  }

  serve(waiter: Waiter): void {
    waiter.resolve(this.#makeTurn(waiter));
  }

  view(): { local: number; token: bigint | undefined } {
    // While the claim itself waits, the first of them is the one that it stands for.
    const waiting = this.#cohort?.waiting ?? 0;
    return { local: this.granted ? waiting : Math.max(0, waiting - 1), token: this.turns.at(-1)?.hand.token };
  }

  /** Nobody waits behind this claim any more. */
  unwanted(): void {
    if (this.turns.length === 0) void this.#retire();
  }

  /** The instance ends: those who wait are told so, and what is nobody's work is given back. */
  drain(error: HoldfastError, owner: object): void {
    this.#cohort?.reject(error, ({ frame }) => !isWorkOf(owner, frame));
    for (const turn of [...this.turns]) turn.drain(error, owner);
  }

  /** The instance closes. What stands in the engine goes with the session. */
  close(error: HoldfastError): void {
    this.#takeCohort()?.failed(error);
    for (const turn of [...this.turns]) void turn.lose({ reason: 'released' });
    this.#line.ended(this);
  }

  // --- the grip of its turns ------------------------------------------------------------------------------------

  readonly outer = undefined;

  get ground(): KeptSession {
    return this.#standing.session;
  }

  get waitedFor(): boolean {
    return this.#line.endlessWaits > 0;
  }

  giveBack(turn: Turn): Promise<boolean> {
    this.#remove(turn);
    if (this.turns.length > 0) return GIVEN_BACK;
    const next = this.#cohort?.next();
    if (!next || !this.mayServe()) return this.#retire();
    this.serve(next);
    return GIVEN_BACK;
  }

  /** Writers behind it get a claim of their own. */
  readersToken(): bigint {
    const token = this.#nextToken();
    this.#weight = 1;
    this.#lightening = true;
    this.#takeCohort()?.detached();
    return token;
  }

  async lighten(): Promise<void> {
    await this.#standing.lighten(1);
    this.#lightening = false;
  }

  // --- what the claim tells us ----------------------------------------------------------------------------------

  onGranted(token: bigint): void {
    this.#token = token;
    this.#grantedAt = this.clock.now();
    this.#line.granted(this);
    const cohort = this.#cohort;
    // The instance closes: what is granted from now on goes with the session.
    if (!cohort) return;
    if (!this.#waits) cohort.answered(this.#grantedAt);
    for (let next = cohort.next(); next && this.#served < COHORT_TURNS; next = cohort.next()) {
      this.serve(next);
      if (!cohort.shared) return cohort.refuseTries();
    }
    if (cohort.waiting > 0) this.#takeCohort()?.detached();
  }

  onWaiting(guarded: boolean): void {
    this.#waits = true;
    this.guarded = guarded;
    if (guarded) this.#line.realm.metGuard();
    this.#cohort?.answered(this.clock.now());
    this.#cohort?.waits(guarded);
  }

  onRefused(guarded: boolean): void {
    if (guarded) this.#line.realm.metGuard();
    this.#takeCohort()?.refused(guarded);
    this.#line.ended(this);
  }

  onFailing(error: HoldfastError): void {
    this.#cohort?.failing(error);
  }

  onFailed(error: HoldfastError): void {
    this.#takeCohort()?.failed(error);
    this.#line.ended(this);
  }

  onLost(loss: Loss): Promise<unknown> | undefined {
    const stopped = [...this.turns].flatMap((turn) => turn.lose(loss) ?? []);
    this.turns.length = 0;
    this.#takeCohort()?.detached(this.granted ? undefined : loss);
    this.#line.ended(this);
    return stopped.length > 0 ? Promise.all(stopped) : undefined;
  }

  #makeTurn({ weight, frame }: Waiter): Turn {
    const turn = new Turn(this, weight, this.#nextToken(), frame);
    this.turns.push(turn);
    return turn;
  }

  #nextToken(): bigint {
    const token = usersToken(this.#token, this.#served);
    this.#served += 1;
    return token;
  }

  #remove(turn: Turn): void {
    const at = this.turns.indexOf(turn);
    if (at !== -1) this.turns.splice(at, 1);
  }

  /** Leaves the engine's line. The leave is sent before the claim of those who still wait. */
  #retire(): Promise<boolean> {
    const left = this.#standing.leave();
    this.#takeCohort()?.detached();
    this.#line.ended(this);
    return left;
  }

  #takeCohort(): Cohort | undefined {
    const cohort = this.#cohort;
    this.#cohort = undefined;
    return cohort;
  }
}

const GIVEN_BACK = Promise.resolve(true);
