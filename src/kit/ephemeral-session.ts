/**
 * A session on a system where what a client makes goes with the client's session: a key under a lease, an ephemeral node. A claim
 * is one such entry, and the entries of a line have an order that the system gives them. So a dead client leaves nothing behind, and
 * who holds follows from the line alone.
 *
 *     enter ─▶ entry made ─ first in line ─▶ held
 *                └ behind others ─▶ waits in the waiting room, until a look says that it holds
 *
 * The port says how an entry is made, looked at and taken away, and what there is under the session. This file gives it what all
 * such systems lack: one enter at a time for a claim, a memory of our own claims, and the comparison of that with the system's
 * word, beat by beat. The system's word is the truth; what is kept here only saves questions.
 */
import type { Clock } from '../core/clock.js';
import type {
  Claim,
  ClaimRef,
  IndexedClaim,
  Moment,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../core/engine.js';
import { agrees, type StandingClaim } from './roster.js';
import { type Lookout, type Watcher, WaitingRoom } from './waiting-room.js';

/** What a claim of ours stands on: its entry, whose number in the system's own count is its token. */
export interface Footing {
  readonly token: bigint;
}

export type Found<F extends Footing, Obstacle> =
  | { readonly state: 'held'; readonly footing: F }
  | { readonly state: 'waiting'; readonly footing: F; readonly obstacle: Obstacle }
  /** It does not stand in line. */
  | { readonly state: 'absent' };

export type Entered<F extends Footing, Obstacle> =
  Exclude<Found<F, Obstacle>, { readonly state: 'absent' }> | Exclude<Place, { readonly state: 'held' | 'waiting' }>;

/** A claim of ours that waits. */
export interface WaitingClaim<F extends Footing> extends Watcher {
  readonly claim: Claim;
  readonly footing: F;
}

/** As much as we know of a claim of ours. */
export interface KnownClaim<F extends Footing> {
  readonly ref: ClaimRef;
  /** Undefined for one that a beat found: an enter that was carried out after its leave. */
  readonly claim: Claim | undefined;
  /** Undefined while no enter was answered. */
  readonly footing: F | undefined;
}

/** What the system says of itself in one beat. */
export interface Listing {
  /** The names of all entries of claims that are there under the session, with the claim's id in each. */
  readonly entries: readonly { readonly id: string; readonly name: string }[];
  /** See Pulse. */
  readonly since?: Moment;
}

export interface EphemeralPort<F extends Footing, Obstacle> extends Lookout<WaitingClaim<F>, Obstacle> {
  /** Makes its entry, unless that is there already. @param footing the one that it had when it was asked last. */
  enter(claim: Claim, footing: F | undefined): Promise<Entered<F, Obstacle>>;
  /** Takes its entry away, also one that we were never told of. False: there was none. */
  leave(known: KnownClaim<F>): Promise<boolean>;
  /** Its entry says another weight from now on, in the same place. */
  reweigh(claim: Claim, footing: F): Promise<F>;
  /** Keeps the session alive and lists what is under it. Undefined: the session is over. @param claims how many we know of. */
  beat(claims: number): Promise<Listing | undefined>;
  /** The footing whose entry has this name, if it is this one. An entry may have got another name since. */
  recognize(footing: F, name: string): F | undefined;
  /** The claim of an entry that we know nothing of, and its footing. Undefined: it is not there any more, or not ours. */
  adopt(id: string, name: string): Promise<KnownClaim<F> | undefined>;
  /** Takes an entry away that nobody needs, some time. */
  discard(name: string): void;
  /** Which of these are there though the listing lacks them. Absent where a listing is never behind. */
  readonly confirm?: (footings: readonly F[]) => Promise<ReadonlySet<F>>;
  /** Ends the session. */
  close(): Promise<void>;
}

interface Entry<F extends Footing, Obstacle> extends KnownClaim<F> {
  readonly serial: number;
  claim: Claim | undefined;
  footing: F | undefined;
  state: 'entering' | 'waiting' | 'held';
  /** Under way; another enter of the same claim waits for it, so that there are never two entries. */
  entering: Promise<Entered<F, Obstacle>> | undefined;
  stopWaiting: (() => void) | undefined;
}

export interface EphemeralSetup<F extends Footing, Obstacle> {
  readonly ttlMs: number;
  readonly clock: Clock;
  readonly listener: SessionListener;
  readonly port: EphemeralPort<F, Obstacle>;
}

export class EphemeralSession<F extends Footing, Obstacle> implements Session {
  readonly ttlMs: number;
  readonly #port: EphemeralPort<F, Obstacle>;
  readonly #listener: SessionListener;
  readonly #waitingRoom: WaitingRoom<WaitingClaim<F>, Obstacle>;
  readonly #entries = new Map<string, Entry<F, Obstacle>>();
  #closed = false;

  constructor({ ttlMs, clock, listener, port }: EphemeralSetup<F, Obstacle>) {
    this.ttlMs = ttlMs;
    this.#port = port;
    this.#listener = listener;
    this.#waitingRoom = new WaitingRoom(clock, port);
  }

  async enter(claim: Claim): Promise<Place> {
    if (this.#closed) return { state: 'gone' };
    const entry = this.#entries.get(claim.id) ?? this.#newEntry(claim);
    entry.entering ??= this.#port.enter(claim, entry.footing).finally(() => (entry.entering = undefined));
    return this.#placed(entry, await entry.entering);
  }

  async leave({ id }: ClaimRef): Promise<boolean> {
    const entry = this.#entries.get(id);
    if (!entry) return false;
    entry.stopWaiting?.();
    // Its entry may be on its way: answered or lost, it does not take long.
    await entry.entering?.catch(() => {});
    const stood = await this.#port.leave(entry);
    if (!entry.entering) this.#forget(entry);
    return stood;
  }

  async reweigh(claim: Claim): Promise<void> {
    const entry = this.#entries.get(claim.id);
    if (!entry?.footing) return;
    entry.claim = claim;
    entry.footing = await this.#port.reweigh(claim, entry.footing);
  }

  async beat(roster: Roster): Promise<Pulse> {
    if (this.#closed) return { alive: false };
    const listing = await this.#port.beat(this.#entries.size);
    if (!listing) return { alive: false };
    const alive = { alive: true, ...(listing.since && { since: listing.since }) } as const;
    this.#waitingRoom.check();
    const listed = this.#recognized(listing.entries);
    const strangers = listing.entries.filter(({ id }) => !this.#entries.has(id));
    if (strangers.length === 0 && agrees(roster, listed.map(standingClaim))) return alive;
    const found = [...listed, ...(await this.#adopted(strangers))];
    const standing = [...found, ...(await this.#unlisted(found))];
    return agrees(roster, standing.map(standingClaim)) ? alive : { ...alive, index: standing.map(indexed) };
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { stopWaiting } of this.#entries.values()) stopWaiting?.();
    this.#entries.clear();
    await this.#port.close();
  }

  /** Whether we have such a claim. */
  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /** Somebody wants it to go. False: we have no such claim any more. */
  evicted(id: string, reason: string): boolean {
    if (!this.has(id)) return false;
    this.#listener.lost(id, { reason: 'evicted', detail: reason });
    return true;
  }

  // --- claims -------------------------------------------------------------------------------------------------------

  #placed(entry: Entry<F, Obstacle>, entered: Entered<F, Obstacle>): Place {
    if (entered.state !== 'held' && entered.state !== 'waiting') {
      if (!entry.entering) this.#forget(entry);
      return entered;
    }
    // Also one that was left meanwhile, if its entry was made only now: the core will leave it again.
    this.#entries.set(entry.ref.id, entry);
    entry.footing = entered.footing;
    // Who held once holds: a look that was older may say otherwise.
    if (entered.state === 'held' || entry.state === 'held') {
      entry.state = 'held';
      entry.stopWaiting?.();
      return { state: 'held', token: entered.footing.token };
    }
    entry.state = 'waiting';
    this.#wait(entry, entered);
    return { state: 'waiting' };
  }

  #wait(entry: Entry<F, Obstacle>, { footing, obstacle }: { readonly footing: F; readonly obstacle: Obstacle }): void {
    const { claim } = entry;
    if (!claim || this.#closed) return;
    const { id, line, capacity } = claim;
    entry.stopWaiting?.();
    entry.stopWaiting = this.#waitingRoom.wait(
      {
        claim,
        footing,
        key: id,
        crowd: line.kind === 'semaphore' ? `${capacity} ${line.name}` : undefined,
        granted: () => {
          entry.state = 'held';
          this.#listener.granted(id, footing.token);
        },
        vanished: () => this.#listener.lost(id, { reason: 'session' }),
      },
      obstacle,
    );
  }

  #newEntry(claim: Claim): Entry<F, Obstacle> {
    const { id, line, serial } = claim;
    return this.#keep({ ref: { id, line }, claim, footing: undefined }, serial, 'entering');
  }

  #keep(known: KnownClaim<F>, serial: number, state: 'entering' | 'waiting'): Entry<F, Obstacle> {
    const entry: Entry<F, Obstacle> = { ...known, serial, state, entering: undefined, stopWaiting: undefined };
    this.#entries.set(known.ref.id, entry);
    return entry;
  }

  #forget(entry: Entry<F, Obstacle>): void {
    entry.stopWaiting?.();
    this.#entries.delete(entry.ref.id);
  }

  // --- what stands --------------------------------------------------------------------------------------------------

  /** Those of our claims that are listed. */
  #recognized(entries: Listing['entries']): Entry<F, Obstacle>[] {
    const recognized = new Set<Entry<F, Obstacle>>();
    for (const { id, name } of entries) {
      const entry = this.#entries.get(id);
      if (!entry) continue;
      if (this.#isIts(entry, name)) recognized.add(entry);
      else this.#port.discard(name);
    }
    return [...recognized];
  }

  /** False: a second entry of the same claim. There should be none; if there is, it would stand in everybody's way. */
  #isIts(entry: Entry<F, Obstacle>, name: string): boolean {
    if (!entry.footing) return true;
    const footing = this.#port.recognize(entry.footing, name);
    if (footing) entry.footing = footing;
    return footing !== undefined;
  }

  /** Those that are listed and that we had forgotten: their enters were carried out after their leaves. */
  async #adopted(strangers: Listing['entries']): Promise<Entry<F, Obstacle>[]> {
    const adopted: Entry<F, Obstacle>[] = [];
    for (const { id, name } of strangers) {
      const known = await this.#port.adopt(id, name);
      if (known && !this.#entries.has(id)) adopted.push(this.#keep(known, 0, 'waiting'));
    }
    return adopted;
  }

  /** Those that stand though they are not listed. */
  async #unlisted(listed: readonly Entry<F, Obstacle>[]): Promise<Entry<F, Obstacle>[]> {
    const known = new Set(listed);
    const missing = [...this.#entries.values()].filter((entry) => entry.footing && !known.has(entry));
    if (missing.length === 0 || !this.#port.confirm) return [];
    const there = await this.#port.confirm(missing.map(({ footing }) => footing!));
    return missing.filter(({ footing }) => there.has(footing!));
  }
}

function standingClaim<F extends Footing>({ ref, serial, state }: Entry<F, unknown>): StandingClaim {
  return { id: ref.id, serial, held: state === 'held' };
}

function indexed<F extends Footing>({ ref, state, footing }: Entry<F, unknown>): IndexedClaim {
  const held = state === 'held';
  return { ...ref, state: held ? 'held' : 'waiting', token: held ? footing?.token : undefined };
}
