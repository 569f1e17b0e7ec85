import { backoff } from './backoff.js';
import type { Claim, Place } from './engine.js';
import { CapacityError, EngineError, type HoldfastError, type Loss, quote } from './errors.js';
import type { KeptSession } from './kept-session.js';
import { isEnginesToken } from './token.js';

/** A claim that has no session yet. */
export type ClaimRequest = Omit<Claim, 'id' | 'serial'>;

/** What the local line hears of its claim. After `onRefused`, `onFailed` or `onLost` it hears nothing more. */
export interface StandingEvents {
  onGranted(token: bigint): void;
  /** The engine has it in line, behind others, or behind nothing but its guard. */
  onWaiting(guarded: boolean): void;
  /** Only for a request that does not wait. */
  onRefused(guarded: boolean): void;
  /** The engine could not be asked. The claim goes on trying until it is left. */
  onFailing(error: HoldfastError): void;
  /** Trying again can't help. */
  onFailed(error: HoldfastError): void;
  /** It waited or held, and is gone. @returns what must have stopped before an evicted claim leaves, if there is anything. */
  onLost(loss: Loss): Promise<unknown> | undefined;
  /** For those who look at the line. */
  view(): { local: number; token: bigint | undefined };
}

/** What it has from its first packet on. */
interface Bound {
  readonly session: KeptSession;
  claim: Claim;
}

/**
 * One claim of ours as it stands in an engine's line, bound to one session for its whole life:
 *
 *     new ──▶ entering ──▶ waiting ──▶ held
 *               │ └───────────────────▲ │
 *               ▼                       ▼
 *              over: left, refused, failed, or lost with its session
 *
 * An enter without an answer is sent again with the same id until the session dies. A claim that was given up answers
 * every late sign of its life with a leave, so nothing is orphaned.
 */
export class Standing {
  readonly request: ClaimRequest;
  readonly events: StandingEvents;
  #state: 'new' | 'entering' | 'waiting' | 'held' | 'over' = 'new';
  #bound: Bound | undefined;
  /** Numbers of the beats after which the engine acknowledged and granted it: older indexes can't know of that. */
  settledAtBeat: number | undefined;
  heldAtBeat: number | undefined;

  constructor(request: ClaimRequest, events: StandingEvents) {
    this.request = request;
    this.events = events;
  }

  get id(): string | undefined {
    return this.#bound?.claim.id;
  }

  get serial(): number {
    return this.#bound?.claim.serial ?? 0;
  }

  get held(): boolean {
    return this.#state === 'held';
  }

  /** From its first packet on. */
  get session(): KeptSession {
    if (!this.#bound) throw new Error('A claim that is new has no session.');
    return this.#bound.session;
  }

  /** Whether the engine has acknowledged it. */
  get settled(): boolean {
    return this.#state === 'waiting' || this.#state === 'held';
  }

  get over(): boolean {
    return this.#state === 'over';
  }

  begin(session: KeptSession): void {
    if (this.#state === 'over') return;
    this.#bound = { session, claim: session.adopt(this) };
    this.#state = 'entering';
    this.#enter(this.#bound, 0);
  }

  /** The engine said so: in its answer, by a message (which may overtake the answer), or in the index of a beat. */
  grant(session: KeptSession, token: bigint): void {
    if (this.#state === 'over' || this.#state === 'held') return;
    if (!isEnginesToken(token)) return this.#giveBack(token);
    if (!session.sure()) {
      // The wall clock says that we were suspended: never hand out a lease before a beat has proved that we still live.
      if (session.notice()) session.afterNextBeat(() => this.grant(session, token));
      return;
    }
    this.#settle(session);
    this.#state = 'held';
    this.heldAtBeat = session.beats;
    this.events.onGranted(token);
  }

  /** Whoever showed such a token to a fence would shut everybody else out, or be refused itself. */
  #giveBack(token: bigint): void {
    void this.leave();
    const problem = `The engine granted ${quote(this.request.line.name)} with the token ${token}, which is no token. Somebody has changed what it counts with.`;
    this.events.onFailed(new EngineError(problem, { retryable: false }));
  }

  /** Gives the claim up, held or not. False: the engine did not have it any more. */
  leave(): Promise<boolean> {
    if (this.#state === 'over') return GONE;
    const bound = this.#finish();
    return bound ? bound.session.withdraw(bound.claim) : LEFT;
  }

  lose(loss: Loss): Promise<unknown> | undefined {
    if (this.#state === 'over') return undefined;
    this.#finish();
    return this.events.onLost(loss);
  }

  fail(error: HoldfastError): void {
    if (this.#state === 'over') return;
    this.#finish();
    this.events.onFailed(error);
  }

  failing(error: HoldfastError): void {
    if (this.#state !== 'over') this.events.onFailing(error);
  }

  /** Write → read. Goes on in the background until the engine has heard it: until then the claim is only too heavy. */
  lighten(weight: number): Promise<void> {
    const bound = this.#bound;
    if (!bound) return Promise.resolve();
    bound.claim = { ...bound.claim, weight };
    return this.#reweigh(bound, 0);
  }

  #enter(bound: Bound, attempt: number): void {
    const { session, claim } = bound;
    session.ask('enter', session.engine.enter(claim), {
      answer: (place) => this.#placed(bound, place),
      late: (place) => this.#placed(bound, place),
      silence: (error) => this.#unanswered(bound, error, attempt),
    });
  }

  #placed({ session, claim }: Bound, place: Place): void {
    session.answered();
    if (this.#state === 'over') {
      if (place.state === 'held' || place.state === 'waiting') void session.withdraw(claim);
    } else if (this.#state === 'entering') {
      this.#join(place, session);
    }
  }

  #join(place: Place, session: KeptSession): void {
    switch (place.state) {
      case 'held':
        return this.grant(session, place.token);
      case 'waiting':
        this.#settle(session);
        this.#state = 'waiting';
        return this.events.onWaiting(place.guarded === true);
      case 'refused':
        this.#finish();
        return this.events.onRefused(place.guarded === true);
      case 'mismatch':
        return this.fail(new CapacityError(this.request.line.name, this.request.capacity, place.capacity));
      case 'gone':
        session.ended({ reason: 'session' });
        // Unless the session had ended before, and nobody was told.
        return void this.lose({ reason: 'session' });
    }
  }

  #unanswered(bound: Bound, error: HoldfastError, attempt: number): void {
    if (this.#state !== 'entering') return;
    if (!(error instanceof EngineError && error.retryable)) return this.fail(error);
    this.events.onFailing(error);
    const { session } = bound;
    session.later(backoff(session.clock, attempt, session.ttlMs / 100, session.ttlMs / 6), () => {
      if (this.#state === 'entering') this.#enter(bound, attempt + 1);
    });
  }

  #reweigh(bound: Bound, attempt: number): Promise<void> {
    const { session, claim } = bound;
    return new Promise((resolve) => {
      if (!this.held) return resolve();
      session.ask('reweigh', session.engine.reweigh(claim), {
        awaited: attempt === 0,
        answer: () => resolve(),
        silence: () => {
          resolve();
          session.later(backoff(session.clock, attempt, session.ttlMs / 100, session.ttlMs / 6), () => {
            void this.#reweigh(bound, attempt + 1);
          });
        },
      });
    });
  }

  #settle({ beats }: KeptSession): void {
    if (this.#state === 'entering') this.settledAtBeat = beats;
  }

  /** What is to be withdrawn, if any packet of ours can have reached the engine. */
  #finish(): Bound | undefined {
    this.#state = 'over';
    this.#bound?.session.forget(this.#bound.claim.id);
    return this.#bound;
  }
}

const LEFT = Promise.resolve(true);
const GONE = Promise.resolve(false);
