import { backoff } from './backoff.js';
import type { Clock, Timer } from './clock.js';
import { Deadlines } from './deadlines.js';
import type { Claim, ClaimRef, Guard, IndexedClaim, Pulse, Roster, Session, SessionListener } from './engine.js';
import { asHoldfastError, type HoldfastError, type Loss, silence } from './errors.js';
import { GuardedSession } from './guarded-session.js';
import type { Standing, StandingEvents } from './standing.js';
import { traceBeat } from './telemetry.js';
import { Validity } from './validity.js';

/** What a session needs of its realm. */
export interface SessionKeeping {
  ended(session: KeptSession): void;
  /** The engine has answered to an enter, whatever it said. */
  answered(): void;
  guarded(guard: Guard): void;
  /** A beat was not answered, or only with an error. */
  missed(error: HoldfastError): void;
  /** Whether an acquire is pending: only then may our timers keep the process alive. */
  readonly busy: boolean;
}

/** What it has from its opening on. */
interface Opened {
  readonly engine: Session;
  /** By the ttl that the engine really keeps. */
  readonly deadlines: Deadlines;
}

interface Reply<T> {
  answer(value: T): void;
  silence(error: HoldfastError): void;
  /** An answer that came after `silence`. */
  late?(value: T): void;
  /** A user awaits it, so the process must not end meanwhile. An enter has its beat for that. Default: false. */
  readonly awaited?: boolean;
}

/** Two beats that hints are the reason for are so far apart: whoever can send hints can't make us flood the engine. */
const HINTED_BEAT_MS = 100;

/**
 * One session in one realm, from its opening to its end; a session that ended is never revived, not even by a late
 * answer. It beats every ttl/3, keeps its validity and the roster of its claims.
 *
 * A failed beat is jeopardy, not loss: loss is when validity ends or the engine says that the session is gone.
 */
export class KeptSession implements SessionListener {
  readonly id: string;
  /** Stands for the session where others can see it; the id itself is a secret. */
  readonly #alias: string;
  readonly clock: Clock;
  readonly validity: Validity;
  readonly #keeping: SessionKeeping;
  readonly #claims = new Map<string, Standing>();
  /** Ids with a leave that has no answer yet. */
  readonly #leaving = new Set<string>();
  /** Ids that were evicted, and leave when what was done under them has stopped. */
  readonly #stopping = new Set<string>();
  readonly #whenLeft: (() => void)[] = [];
  readonly #renewals: (() => void)[] = [];
  #opened: Opened | undefined;
  #loss: Loss | undefined;
  #freed: Promise<void> | undefined;
  /** It is about to end in good order. */
  #closing = false;
  #serial = 0;
  /** How many beats were sent. */
  beats = 0;
  #beating = false;
  #beatSentAt = Number.NEGATIVE_INFINITY;
  /** A hint came while a beat was under way, which may know nothing of what the hint is about. */
  #hinted = false;
  /** Whether it has ever beaten: one that dies before is no reason to hurry with the next. */
  proven = false;
  #provenAt = 0;
  #beatTimer: Timer | undefined;
  #beatDue = 0;
  #holds = false;
  #expiryTimer: Timer | undefined;

  constructor(clock: Clock, keeping: SessionKeeping) {
    this.id = clock.id();
    this.#alias = clock.id();
    this.clock = clock;
    this.validity = new Validity(clock);
    this.#keeping = keeping;
  }

  get engine(): Session {
    if (!this.#opened) throw notOpen();
    return this.#opened.engine;
  }

  get ttlMs(): number {
    return this.engine.ttlMs;
  }

  /** How long ago it proved that it lives: with its opening, or with a beat. */
  get provenAgoMs(): number {
    return this.clock.now() - this.#provenAt;
  }

  /** Opened by a request that was sent at these times. A session that ended on the way stays ended. */
  start(engine: Session, sentAt: number, sentAtWall: number): void {
    const deadlines = new Deadlines(this.clock, deadlineMs(engine.ttlMs));
    this.#opened = { engine: new GuardedSession(engine), deadlines };
    this.#provenAt = this.clock.now();
    this.validity.renew(sentAt, sentAtWall, this.ttlMs);
    if (this.#loss) return;
    this.#schedule(this.#interval());
    this.#watchExpiry();
  }

  // --- validity -------------------------------------------------------------------------------------------------

  /** Takes note of the end of validity, however late the event loop got here. Answers whether the session lives. */
  notice(): boolean {
    if (!this.#loss && this.validity.expired) this.ended({ reason: 'expired' });
    return !this.#loss;
  }

  /** Whether what it claims may be handed out now. Where that is in doubt a beat asks at once. */
  sure(): boolean {
    if (!this.notice()) return false;
    const { inDoubt, missed } = this.validity;
    if (inDoubt && !this.#beating && missed === 0) this.#schedule(0);
    return !inDoubt;
  }

  afterNextBeat(run: () => void): void {
    this.#renewals.push(run);
    this.#schedule(0);
  }

  // --- claims ---------------------------------------------------------------------------------------------------

  adopt(standing: Standing): Claim {
    this.#serial += 1;
    const id = `${this.#alias}-${this.#serial}`;
    this.#claims.set(id, standing);
    const { line, weight, capacity, wait, note, rw } = standing.request;
    return { id, line, serial: this.#serial, weight, capacity, wait, note, rw };
  }

  /** Who hears of this claim. */
  events(claimId: string): StandingEvents | undefined {
    return this.#claims.get(claimId)?.events;
  }

  /** The claim is no longer ours: whatever the engine still has under its id will be left. */
  forget(id: string): void {
    this.#claims.delete(id);
  }

  /**
   * Takes a claim out of its line. When the engine does not answer we call it left, which is true for us; the next
   * beat finds it in the index and leaves it again.
   */
  withdraw(claim: ClaimRef): Promise<boolean> {
    if (this.#loss) return Promise.resolve(false);
    // It goes with the session. To leave it as well could go on for ever where the engine has it again in every index.
    if (this.#closing) return Promise.resolve(true);
    this.#leaving.add(claim.id);
    return new Promise((resolve) => {
      this.ask('leave', this.engine.leave(claim), {
        awaited: true,
        answer: (existed) => {
          this.#left(claim.id);
          resolve(existed);
        },
        silence: () => {
          this.#left(claim.id);
          this.#schedule(backoff(this.clock, this.validity.missed, this.ttlMs / 100, this.ttlMs / 6));
          resolve(true);
        },
      });
    });
  }

  // --- what the engine tells us ------------------------------------------------------------------------------------

  granted(claimId: string, token: bigint): void {
    this.#claims.get(claimId)?.grant(this, token);
  }

  lost(claimId: string, loss: Loss): void {
    const standing = this.#claims.get(claimId);
    if (!standing) return;
    const stopped = standing.lose(loss);
    const claim: ClaimRef = { id: claimId, line: standing.request.line };
    if (stopped) this.#withdrawAfter(stopped, claim);
    else void this.withdraw(claim);
  }

  /** An evicted claim stands for one ttl more at most, as that of a holder that no longer answers does. */
  #withdrawAfter(stopped: Promise<unknown>, claim: ClaimRef): void {
    this.#stopping.add(claim.id);
    const leave = (): void => {
      if (this.#stopping.delete(claim.id)) void this.withdraw(claim);
    };
    // Who could not stop may be at work still.
    stopped.then(leave, () => {});
    this.later(this.ttlMs, leave);
  }

  ended(loss: Loss): void {
    if (this.#loss) return;
    this.#loss = loss;
    this.validity.ended = true;
    if (this.#opened) this.busyChanged();
    this.#beatTimer?.close();
    this.#expiryTimer?.close();
    const standings = [...this.#claims.values()];
    this.#claims.clear();
    this.#keeping.ended(this);
    for (const standing of standings) void standing.lose(loss);
    if (!this.#opened) return;
    const { engine, deadlines } = this.#opened;
    // What was asked of it is moot.
    deadlines.end();
    const awaited = loss.reason === 'released';
    this.#freed = new Promise((resolve) => {
      // The engine frees what a dead session had after its ttl; telling it is only quicker, so silence is no harm.
      this.ask('close', engine.close(), { awaited, answer: resolve, silence: () => resolve() });
    });
  }

  #left(claimId: string): void {
    this.#leaving.delete(claimId);
    if (this.#leaving.size > 0 || this.#whenLeft.length === 0) return;
    for (const resolve of this.#whenLeft.splice(0)) resolve();
  }

  /** Ends the session in good order: what leaves must not lose its way because the engine was closed under it. */
  async close(): Promise<void> {
    this.#closing = true;
    if (this.#leaving.size > 0) await new Promise<void>((resolve) => this.#whenLeft.push(resolve));
    this.ended({ reason: 'released' });
    await this.#freed;
  }

  hinted(): void {
    if (!this.#opened) return;
    if (this.#beating) this.#hinted = true;
    else this.#schedule(Math.max(0, this.#beatSentAt + HINTED_BEAT_MS - this.clock.now()));
  }

  guarded(guard: Guard): void {
    this.#keeping.guarded(guard);
  }

  // --- calls ----------------------------------------------------------------------------------------------------

  /** One call with our own deadline: exactly one of `answer` and `silence`. */
  ask<T>(doing: string, work: Promise<T>, on: Reply<T>): void {
    if (!this.#opened) throw notOpen();
    const call = this.#opened.deadlines.start(() => {
      on.silence(silence(doing));
    }, on.awaited);
    work.then(
      (value) => {
        if (call.answered()) on.answer(value);
        else on.late?.(value);
      },
      (error: unknown) => {
        if (call.answered()) on.silence(asHoldfastError(error, doing));
      },
    );
  }

  /** The engine has answered to an enter. Other calls it may answer by itself, without the server behind it. */
  answered(): void {
    this.#keeping.answered();
  }

  /** Runs later unless the session has ended by then. */
  later(ms: number, run: () => void): void {
    const timer = this.clock.timer(ms, () => {
      if (!this.#loss) run();
    });
    // Whoever waits for what is tried again keeps the process alive by waiting.
    timer.unref();
  }

  // --- beats ----------------------------------------------------------------------------------------------------

  /** An acquire became pending or the last one ended. */
  busyChanged(): void {
    const { busy } = this.#keeping;
    if (busy) this.#beatTimer?.ref();
    else this.#beatTimer?.unref();
    // While a beat is under way there is no such timer, but that of its deadline.
    const holds = busy && this.#beatTimer === undefined && !this.#loss;
    if (holds !== this.#holds) this.#opened?.deadlines.addAwaited(holds ? 1 : -1);
    this.#holds = holds;
  }

  #interval(): number {
    return (this.ttlMs / 3) * (0.8 + 0.2 * this.clock.random());
  }

  /** The next beat in `ms`, or earlier if one is due earlier. */
  #schedule(ms: number): void {
    if (this.#loss) return;
    const due = this.clock.now() + ms;
    if (this.#beatTimer && this.#beatDue <= due) return;
    this.#beatTimer?.close();
    this.#beatDue = due;
    this.#beatTimer = this.clock.timer(ms, () => this.#beat());
    this.busyChanged();
  }

  #beat(): void {
    this.#beatTimer = undefined;
    if (!this.notice()) return;
    this.busyChanged();
    this.beats += 1;
    this.#beating = true;
    this.#hinted = false;
    const number = this.beats;
    const sentAt = this.clock.now();
    this.#beatSentAt = sentAt;
    const sentAtWall = this.clock.wall();
    const beaten = (pulse: Pulse): void => {
      const { now, wall } = (pulse.alive && pulse.since) || { now: sentAt, wall: sentAtWall };
      this.#beaten(pulse, number, now, wall);
    };
    const roster = this.#roster();
    const sent = traceBeat({ claims: roster.count }, () => this.engine.beat(roster));
    this.ask('beat', sent, {
      answer: (pulse) => {
        this.#beating = false;
        beaten(pulse);
        this.#schedule(this.#interval());
        if (this.#hinted) this.hinted();
      },
      late: beaten,
      silence: (error) => {
        this.#keeping.missed(error);
        this.#beating = false;
        this.#schedule(backoff(this.clock, this.validity.missed, this.ttlMs / 30, this.ttlMs / 6));
        this.validity.missed += 1;
      },
    });
  }

  #beaten(pulse: Pulse, number: number, sentAt: number, sentAtWall: number): void {
    if (!this.notice()) return;
    if (!pulse.alive) return this.ended({ reason: 'session' });
    this.proven = true;
    this.#provenAt = this.clock.now();
    this.validity.renew(sentAt, sentAtWall, this.ttlMs);
    if (pulse.index) this.#reconcile(pulse.index, number);
    for (const run of this.#renewals.splice(0)) run();
  }

  #watchExpiry(): void {
    this.#expiryTimer = this.clock.timer(Math.max(1, this.validity.expiresInMs), () => {
      if (this.notice()) this.#watchExpiry();
    });
    this.#expiryTimer.unref();
  }

  #roster(): Roster {
    const unsettled = [...this.#leaving, ...this.#stopping];
    let [count, held, checksum] = [0, 0, 0];
    for (const [id, standing] of this.#claims) {
      if (!standing.settled) {
        unsettled.push(id);
        continue;
      }
      count += 1;
      held += standing.held ? 1 : 0;
      checksum = (checksum + standing.serial) >>> 0;
    }
    return { count, held, checksum, unsettled };
  }

  /**
   * Mends what the engine's index and our roster disagree on. Only what we knew when the beat was sent can be lost: a
   * claim that is missing, or one that only waits though we were told that it holds. An id that is not ours (an enter
   * that ran after its leave, a leave that got lost) is left, which is safe at any time: ids are never used again.
   */
  #reconcile(index: readonly IndexedClaim[], beat: number): void {
    const indexed = new Map(index.map((claim) => [claim.id, claim]));
    for (const [id, standing] of this.#claims) {
      const found = indexed.get(id);
      if (found?.state === 'held' && found.token !== undefined) standing.grant(this, found.token);
      else if (isOlder(found ? standing.heldAtBeat : standing.settledAtBeat, beat))
        this.lost(id, { reason: 'session' });
    }
    for (const claim of index) {
      if (![this.#claims, this.#leaving, this.#stopping].some((ours) => ours.has(claim.id))) void this.withdraw(claim);
    }
  }
}

/** Three tries fit into one ttl, so that one lost packet never costs a lease. */
export function deadlineMs(ttlMs: number): number {
  return ttlMs / 3;
}

function notOpen(): Error {
  return new Error('A session that is not open yet can’t be asked.');
}

function isOlder(knownAtBeat: number | undefined, beat: number): boolean {
  return knownAtBeat !== undefined && knownAtBeat < beat;
}
