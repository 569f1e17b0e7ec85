import { backoff } from './backoff.js';
import type { Claim, Place } from './engine.js';
import { CapacityError, EngineError, type HoldfastError, type Loss } from './errors.js';
import type { KeptSession } from './kept-session.js';

/** A claim that has no session yet. */
export type ClaimRequest = Omit<Claim, 'id' | 'serial'>;

/** What the local line hears of its claim. After `onRefused`, `onFailed` or `onLost` it hears nothing more. */
export interface StandingEvents {
  onGranted(token: bigint): void;
  /** The engine has it in line, behind others. */
  onWaiting(): void;
  /** Only for a request that does not wait. */
  onRefused(): void;
  /** The engine could not be asked. The claim goes on trying until it is left. */
  onFailing(error: HoldfastError): void;
  /** Trying again can't help. */
  onFailed(error: HoldfastError): void;
  /** It waited or held, and is gone. */
  onLost(loss: Loss): void;
  /** For those who look at the line. */
  view(): { local: number; token: bigint | undefined };
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
  #session: KeptSession | undefined;
  #claim: Claim | undefined;
  /** Numbers of the beats after which the engine acknowledged and granted it: older indexes can't know of that. */
  settledAtBeat: number | undefined;
  heldAtBeat: number | undefined;

  constructor(request: ClaimRequest, events: StandingEvents) {
    this.request = request;
    this.events = events;
  }

  get id(): string | undefined {
    return this.#claim?.id;
  }

  get serial(): number {
    return this.#claim?.serial ?? 0;
  }

  get held(): boolean {
    return this.#state === 'held';
  }

  get session(): KeptSession | undefined {
    return this.#session;
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
    this.#session = session;
    this.#claim = session.adopt(this);
    this.#state = 'entering';
    this.#enter(0);
  }

  /** The engine said so: in its answer, by a message (which may overtake the answer), or in the index of a beat. */
  grant(token: bigint): void {
    if (this.#state === 'over' || this.#state === 'held') return;
    const session = this.#session!;
    if (!session.sure()) {
      // The wall clock says that we were suspended: never hand out a lease before a beat has proved that we still live.
      if (session.notice()) session.afterNextBeat(() => this.grant(token));
      return;
    }
    this.#settle();
    this.#state = 'held';
    this.heldAtBeat = session.beats;
    this.events.onGranted(token);
  }

  /** Gives the claim up, held or not. False: the engine did not have it any more. */
  leave(): Promise<boolean> {
    if (this.#state === 'over') return GONE;
    const session = this.#finish();
    return session ? session.withdraw(this.#claim!) : LEFT;
  }

  lose(loss: Loss): void {
    if (this.#state === 'over') return;
    this.#finish();
    this.events.onLost(loss);
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
    this.#claim = { ...this.#claim!, weight };
    return this.#reweigh(0);
  }

  #enter(attempt: number): void {
    const session = this.#session!;
    session.ask('enter', session.engine.enter(this.#claim!), {
      answer: (place) => this.#placed(place),
      late: (place) => this.#placed(place),
      silence: (error) => this.#unanswered(error, attempt),
    });
  }

  #placed(place: Place): void {
    const session = this.#session!;
    session.answered();
    if (this.#state === 'over') {
      if (place.state === 'held' || place.state === 'waiting') void session.withdraw(this.#claim!);
    } else if (this.#state === 'entering') {
      this.#join(place, session);
    }
  }

  #join(place: Place, session: KeptSession): void {
    switch (place.state) {
      case 'held':
        return this.grant(place.token);
      case 'waiting':
        this.#settle();
        this.#state = 'waiting';
        return this.events.onWaiting();
      case 'refused':
        this.#finish();
        return this.events.onRefused();
      case 'mismatch':
        return this.fail(new CapacityError(this.request.line.name, this.request.capacity, place.capacity));
      case 'gone':
        session.ended({ reason: 'session' });
        // Unless the session had ended before, and nobody was told.
        return this.lose({ reason: 'session' });
    }
  }

  #unanswered(error: HoldfastError, attempt: number): void {
    if (this.#state !== 'entering') return;
    if (!(error instanceof EngineError && error.retryable)) return this.fail(error);
    this.events.onFailing(error);
    const session = this.#session!;
    session.later(backoff(session.clock, attempt, session.ttlMs / 100, session.ttlMs / 6), () => {
      if (this.#state === 'entering') this.#enter(attempt + 1);
    });
  }

  #reweigh(attempt: number): Promise<void> {
    const session = this.#session!;
    return new Promise((resolve) => {
      if (!this.held) return resolve();
      session.ask('reweigh', session.engine.reweigh(this.#claim!), {
        awaited: attempt === 0,
        answer: () => resolve(),
        silence: () => {
          resolve();
          session.later(backoff(session.clock, attempt, session.ttlMs / 100, session.ttlMs / 6), () => {
            void this.#reweigh(attempt + 1);
          });
        },
      });
    });
  }

  #settle(): void {
    if (this.#state === 'entering') this.settledAtBeat = this.#session!.beats;
  }

  /** The session to withdraw from, if any packet of ours can have reached it. */
  #finish(): KeptSession | undefined {
    this.#state = 'over';
    if (this.#claim) this.#session?.forget(this.#claim.id);
    return this.#session;
  }
}

const LEFT = Promise.resolve(true);
const GONE = Promise.resolve(false);
