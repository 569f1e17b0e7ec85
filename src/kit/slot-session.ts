/**
 * A session on a system that has one slot per name and nothing else: no line, and no index of who stands where.
 *
 *     enter ─▶ local line ─ first ─▶ take ─▶ held
 *                                     └ busy ─▶ asks again: when told that the slot may be free, or after a pause
 *
 * The store says how a slot is taken, kept and dropped; this file gives it what all such systems lack: a queue of our
 * own claims, of which only the first asks; pauses that grow and are random; and the care about replies that are lost
 * or late. Between instances there is no order.
 */
import { backoff } from '../core/backoff.js';
import type { Clock, Timer } from '../core/clock.js';
import { Deadlines } from '../core/deadlines.js';
import type {
  Claim,
  ClaimRef,
  IndexedClaim,
  LineRef,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../core/engine.js';
import { EngineError, type Loss } from '../core/errors.js';
import { deadlineMs } from '../core/kept-session.js';
import { ALL, Line, type Spot } from '../core/line.js';
import { agrees, type StandingClaim } from './roster.js';
import { SlotCalls } from './slot-calls.js';
import type { HeldSlot, SlotStore, SlotWatch, Taken } from './slot-store.js';

export interface SlotSessionSetup {
  readonly options: OpenOptions;
  readonly listener: SessionListener;
  readonly clock: Clock;
  /** `lost` is for stores that notice a loss before anybody asks. */
  readonly store: (lost: (claimId: string, loss: Loss) => void) => SlotStore;
}

/** A claim of ours in its local line. It may ask the store while its spot is held there. */
class Seat {
  readonly claim: Claim;
  readonly line: SlotLine;
  readonly spot: Spot<Seat>;
  token: bigint | undefined;
  waiting = false;
  /** It has left: whatever it still takes is dropped. */
  gone = false;
  attempt = 0;
  freeInMs: number | undefined;
  /** What its place tells of why it has no token. */
  reason: { readonly guarded?: true } = {};
  asking = false;
  /** A hint came while we asked: the answer may be older than the hint. */
  askAgain = false;
  timer: Timer | undefined;

  constructor(claim: Claim, line: SlotLine) {
    this.claim = claim;
    this.line = line;
    this.spot = line.seats.enter(this, claim.weight);
  }

  depart(): void {
    this.gone = true;
    this.waiting = false;
    this.timer?.close();
  }
}

interface SlotLine {
  readonly ref: LineRef;
  readonly seats: Line<Seat>;
  /** Drops under way. Who is next asks after them, or it would find our own slot. */
  dropping: Promise<unknown> | undefined;
  watch: Promise<SlotWatch | undefined> | undefined;
  /** Beats since somebody waited here: a watch outlives its waiter a little, for the next one. */
  idleBeats: number;
}

export class SlotSession implements Session {
  readonly ttlMs: number;
  readonly #store: SlotStore;
  readonly #calls: SlotCalls;
  readonly #listener: SessionListener;
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #patienceMs: number;
  readonly #seats = new Map<string, Seat>();
  readonly #lines = new Map<string, SlotLine>();
  #beats = 0;
  #aliveUntil: number;

  constructor({ options, listener, clock, store }: SlotSessionSetup) {
    this.ttlMs = options.ttlMs;
    this.#listener = listener;
    this.#clock = clock;
    this.#aliveUntil = clock.now() + this.ttlMs;
    this.#store = store((id, loss) => this.#lose(id, loss));
    this.#patienceMs = this.#store.pace.patienceMs ?? 0;
    this.#deadlines = new Deadlines(clock, this.#patienceMs + deadlineMs(this.ttlMs));
    this.#calls = new SlotCalls({ store: this.#store, clock, deadlines: this.#deadlines, ttlMs: this.ttlMs });
  }

  async enter(claim: Claim): Promise<Place> {
    if (!this.#alive()) return { state: 'gone' };
    const seat = this.#seats.get(claim.id) ?? this.#sit(claim);
    if (seat.token === undefined && !seat.waiting && seat.spot.held) {
      const token = await this.#take(seat, 0).catch((error: unknown) => this.#giveUp(seat, error));
      if (token !== undefined) this.#hold(seat, token);
    }
    if (seat.token !== undefined && !seat.gone) return { state: 'held', token: seat.token };
    if (claim.wait && !seat.gone) {
      if (!seat.waiting) this.#wait(seat);
      return { state: 'waiting', ...seat.reason };
    }
    this.#rise(seat);
    return { state: 'refused', ...seat.reason };
  }

  /** What no second try can cure is not asked for again: it must not stand in the way of those behind it. */
  #giveUp(seat: Seat, error: unknown): never {
    if (isHopeless(error) && !seat.gone) {
      void this.#drop(seat);
      this.#rise(seat);
    }
    throw error;
  }

  async leave(claim: ClaimRef): Promise<boolean> {
    const seat = this.#seats.get(claim.id);
    if (!seat) return false;
    if (!seat.spot.held) {
      this.#rise(seat);
      return true;
    }
    const dropped = this.#drop(seat);
    this.#rise(seat);
    // One that only waited has left, however long its store needs to end the wait.
    return seat.token === undefined ? true : dropped;
  }

  async reweigh(claim: Claim): Promise<void> {
    const seat = this.#seats.get(claim.id);
    await this.#store.lighten!(claim);
    if (seat && !seat.gone) this.#admit(seat.line.seats.lighten(seat.spot, claim.weight));
  }

  async beat(roster: Roster): Promise<Pulse> {
    if (!this.#alive()) return { alive: false };
    this.#beats += 1;
    const sentAt = this.#clock.now();
    this.#closeIdleWatches();
    this.#calls.dropAgain();
    const index = agrees(roster, this.#standing()) ? undefined : this.#index();
    const held: HeldSlot[] = [];
    for (const { claim, token } of this.#seats.values()) {
      if (token !== undefined) held.push({ id: claim.id, line: claim.line, token });
    }
    const lost = held.length > 0 ? await this.#store.keep(held) : [];
    // The answer may be late: to a session that was closed meanwhile, or after that of a later beat.
    if (this.#alive()) this.#aliveUntil = Math.max(this.#aliveUntil, sentAt + this.ttlMs);
    for (const id of lost) this.#lose(id, { reason: 'session' });
    return index ? { alive: true, index } : { alive: true };
  }

  async close(): Promise<void> {
    this.#aliveUntil = Number.NEGATIVE_INFINITY;
    const seats = [...this.#seats.values()];
    const watches = [...this.#lines.values()].map(({ watch }) => watch);
    this.#seats.clear();
    this.#lines.clear();
    for (const seat of seats) seat.depart();
    await this.#calls.dropAll(seats.filter(({ spot }) => spot.held).map(({ claim }) => claim));
    await Promise.allSettled(watches.map(async (watch) => (await watch)?.close()));
    await this.#store.close();
  }

  /** A session without a beat for one ttl has lost its slots. Whoever stalled for so long must not go on with it. */
  #alive(): boolean {
    return this.#clock.now() < this.#aliveUntil;
  }

  *#standing(): Iterable<StandingClaim> {
    for (const { claim, token, waiting } of this.#seats.values()) {
      if (token !== undefined || waiting) yield { id: claim.id, serial: claim.serial, held: token !== undefined };
    }
  }

  #index(): IndexedClaim[] {
    return Array.from(this.#seats.values(), ({ claim: { id, line }, token }) => ({
      id,
      line,
      state: token === undefined ? 'waiting' : 'held',
      token,
    }));
  }

  // --- the local line -------------------------------------------------------------------------------------------

  #sit(claim: Claim): Seat {
    const key = `${claim.line.kind}:${claim.line.name}`;
    let line = this.#lines.get(key);
    if (!line) {
      line = { ref: claim.line, seats: new Line(ALL), dropping: undefined, watch: undefined, idleBeats: 0 };
      this.#lines.set(key, line);
    }
    const seat = new Seat(claim, line);
    this.#seats.set(claim.id, seat);
    return seat;
  }

  #rise(seat: Seat): void {
    if (seat.gone) return;
    seat.depart();
    this.#seats.delete(seat.claim.id);
    this.#admit(seat.line.seats.leave(seat.spot));
    this.#forgetIfEmpty(seat.line);
  }

  #admit(spots: readonly Spot<Seat>[]): void {
    for (const { item: seat } of spots) if (seat.waiting) this.#wait(seat);
  }

  #lose(id: string, loss: Loss): void {
    const seat = this.#seats.get(id);
    if (!seat) return;
    // Where most of several stores had forgotten it, some have it, or have just been given it again.
    if (seat.token !== undefined) void this.#drop(seat);
    this.#rise(seat);
    this.#listener.lost(id, loss);
  }

  #drop({ claim, line }: Seat): Promise<boolean> {
    const dropped = this.#calls.drop(claim);
    const dropping = Promise.all([line.dropping, this.#calls.over(claim, dropped)]).then(() => {
      if (line.dropping !== dropping) return;
      line.dropping = undefined;
      this.#forgetIfEmpty(line);
    });
    line.dropping = dropping;
    return dropped;
  }

  #forgetIfEmpty(line: SlotLine): void {
    const { ref, seats, dropping, watch } = line;
    const key = `${ref.kind}:${ref.name}`;
    // A watch that was given up may answer when the line has long been forgotten, and begun anew.
    if (seats.size === 0 && !dropping && !watch && this.#lines.get(key) === line) this.#lines.delete(key);
  }

  // --- asking ---------------------------------------------------------------------------------------------------

  /** One try. Undefined: busy. */
  async #take(seat: Seat, patienceMs: number): Promise<bigint | undefined> {
    try {
      while (seat.line.dropping) await seat.line.dropping;
      if (seat.gone) return undefined;
      let beat = this.#beats;
      const taken = await this.#calls.take(seat.claim, patienceMs);
      if (taken.token === undefined) return this.#busy(seat, taken);
      seat.freeInMs = undefined;
      // The core counts our validity from the last beat. One that was sent after the take did not renew this slot.
      while (beat !== this.#beats) {
        beat = this.#beats;
        const lost = await this.#store.keep([{ ...seat.claim, token: taken.token }]);
        if (lost.length > 0) return undefined;
      }
      return taken.token;
    } finally {
      if (seat.gone) void this.#drop(seat);
    }
  }

  #busy(seat: Seat, { freeInMs, guard }: Extract<Taken, { token?: undefined }>): undefined {
    seat.freeInMs = freeInMs;
    seat.reason = guard ? { guarded: true } : {};
    if (guard) this.#listener.guarded?.(guard);
  }

  #wait(seat: Seat): void {
    seat.waiting = true;
    if (!seat.spot.held) return;
    this.#watch(seat.line);
    // The first in line that has never asked: whoever was before it here has just left.
    if (seat.freeInMs === undefined && seat.attempt === 0) this.#ask(seat);
    else this.#askLater(seat);
  }

  #askLater(seat: Seat): void {
    const { firstMs, mostMs } = this.#store.pace;
    const pause = backoff(this.#clock, seat.attempt, firstMs, mostMs);
    // When it runs out at the latest; not all of the fleet at that very moment.
    const until = (seat.freeInMs ?? Number.POSITIVE_INFINITY) + 1 + this.#clock.random() * firstMs;
    seat.attempt += 1;
    seat.timer?.close();
    seat.timer = this.#clock.timer(Math.min(pause, until), () => this.#ask(seat));
    // A pending acquire keeps the process alive by its beats.
    seat.timer.unref();
  }

  #ask(seat: Seat): void {
    seat.timer?.close();
    seat.askAgain = seat.asking;
    if (seat.asking) return;
    seat.asking = true;
    const goOn = (): void => {
      seat.asking = false;
      if (seat.gone || seat.token !== undefined) return;
      if (seat.askAgain) this.#ask(seat);
      else this.#askLater(seat);
    };
    const call = this.#deadlines.start(goOn);
    this.#take(seat, this.#patienceMs)
      .then(
        (token) => token !== undefined && this.#granted(seat, token),
        // Who waits enters anew then, and hears from that what is wrong.
        (error: unknown) => isHopeless(error) && this.#lose(seat.claim.id, { reason: 'session' }),
      )
      .finally(() => call.answered() && goOn());
  }

  #granted(seat: Seat, token: bigint): void {
    if (this.#hold(seat, token)) this.#listener.granted(seat.claim.id, token);
  }

  /** False: it has left, or holds already. Two takes of one claim may be under way, and have the same answer. */
  #hold(seat: Seat, token: bigint): boolean {
    if (seat.gone || seat.token !== undefined) return false;
    seat.token = token;
    seat.waiting = false;
    seat.timer?.close();
    return true;
  }

  // --- hints ----------------------------------------------------------------------------------------------------

  #watch(line: SlotLine): void {
    if (!this.#store.watch) return;
    line.idleBeats = 0;
    if (line.watch) return;
    const opening: Promise<SlotWatch | undefined> = this.#store
      .watch(line.ref, () => this.#freed(line))
      .then(
        (watch) => {
          // It may have been freed while we did not listen yet.
          this.#freed(line);
          return watch;
        },
        () => {
          // Until somebody comes to wait here, asking has to do.
          if (line.watch === opening) line.watch = undefined;
          this.#forgetIfEmpty(line);
          return undefined;
        },
      );
    line.watch = opening;
  }

  #freed(line: SlotLine): void {
    for (const { item: seat, held } of line.seats) {
      if (!held) return;
      if (seat.waiting) this.#ask(seat);
    }
  }

  #closeIdleWatches(): void {
    for (const line of this.#lines.values()) {
      if (!line.watch) continue;
      line.idleBeats = [...line.seats].some(({ item }) => item.waiting) ? 0 : line.idleBeats + 1;
      if (line.idleBeats < 3) continue;
      void line.watch.then((watch) => watch?.close()).catch(expires);
      line.watch = undefined;
      this.#forgetIfEmpty(line);
    }
  }
}

/** Asking again would have the same answer. */
function isHopeless(error: unknown): boolean {
  return error instanceof EngineError && !error.retryable;
}

/** What could not be asked is asked again, and what could not be dropped runs out by itself. */
function expires(): void {}
