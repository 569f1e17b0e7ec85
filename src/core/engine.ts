/**
 * What an engine is to the core. Read this first: an engine is this interface and nothing else.
 *
 * The core calls with its own deadline and may give up on a call, so every call must be safe to repeat and safe to
 * run late:
 * - A claim's id is chosen before the first packet. `enter` of an id that stands already gives the same answer again.
 * - `leave` of what is not there answers false and harms nothing.
 * - A promise that rejects means *unknown*, never *no*. Only `gone` and the listener say that something was lost.
 * - An `enter` that runs after its `leave` leaves an orphan. The next `beat` finds it: the index does not match.
 */
import type { Clock } from './clock.js';
import type { Loss } from './errors.js';

export interface Traits {
  /** How the engine notices that we died: a session that must beat, a connection that breaks, a key that expires. */
  readonly liveness: 'session' | 'connection' | 'key';
  readonly order: 'fifo' | 'none';
  /** Whether a waiting claim hears of its grant at once, or asks from time to time. */
  readonly wake: 'push' | 'poll';
  /** What a token is worth: agreed by consensus, committed to disk, or floored by a clock that must not go back. */
  readonly token: 'consensus' | 'durable' | 'clock';
  /** Mutex only; mutex and read/write lock; these and semaphores. */
  readonly sharing: 'exclusive' | 'shared' | 'weighted';
  readonly registers: boolean;
  /** Whether a register that was written for a time goes after it. Default: false; what `once` with `atLeast` notes stays then. */
  readonly forgets?: boolean;
  /** Whether lines can be listed: inspect, evict, election. */
  readonly listing: boolean;
  /** The shortest ttl that the engine can keep. */
  readonly minTtlMs: number;
}

/**
 * An engine that is not connected yet: what `redis(client)` returns and what a URL stands for. Its traits and realms
 * are data, known before any client library is loaded, so that what can't be done is refused when a lock is made.
 */
export interface EngineSource {
  readonly traits: Traits;
  /**
   * Which system it stands for: the URL, or the client that was handed in. Two sources with the same place share locks, tokens
   * and registers. Default: a place of its own.
   */
  readonly place?: unknown;
  /** What and where it is, for people, without credentials: `redis at localhost:6379`. Default: `the engine`. */
  readonly title?: string | undefined;
  /** Names with different realms live on servers that fail apart: each realm gets a session of its own. */
  realm?(name: string): string;
  connect(setup: EngineSetup): Promise<Engine>;
}

export interface EngineSetup {
  readonly namespace: string;
  readonly clock: Clock;
}

export interface Engine extends AsyncDisposable {
  open(options: OpenOptions, listener: SessionListener): Promise<Session>;
  /** Lines that have claims, in no order; a name may have one line of each kind. Absent where `traits.listing` is false. */
  inspect?(query: LineQuery): AsyncIterable<EngineLine>;
  /** Marks a claim and tells its session, who leaves. False: no such claim. Absent where `traits.listing` is false. */
  evict?(name: string, claimId: string, reason: string): Promise<boolean>;
  /** Asks the server for any answer. Absent where every beat asks it. */
  ping?(): Promise<void>;
  /** Absent where `traits.registers` is false. */
  readonly registers?: Registers;
  /** Closes what the engine itself opened; never a client that the user handed in. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface OpenOptions {
  /**
   * New for every session: a dead one is never opened again. It is a secret, the proof that a call comes from this
   * session, and never shown to anybody. Claim ids are public: they begin with another id.
   */
  readonly id: string;
  readonly realm: string;
  readonly ttlMs: number;
  /** For people: application, host and pid. */
  readonly label: string;
}

/** What the engine tells a session unasked. Calls about ids that the session does not know are harmless. */
export interface SessionListener {
  granted(claimId: string, token: bigint): void;
  /** One claim was taken away (evicted, its connection broke). The session answers by leaving it. */
  lost(claimId: string, loss: Loss): void;
  /** The whole session is gone. */
  ended(loss: Loss): void;
  /**
   * Something was said about this session that proves nothing, because anybody may have said it. The session looks for itself with
   * a beat: soon, and not more often however much is said.
   */
  hinted(): void;
  /** For a while nobody is granted anything; told with the opening, with beats, and to whom it concerns. */
  guarded?(guard: Guard): void;
}

/**
 * A server that may have lost its memory grants nothing until whoever still believes in a lock of before has lost it. That is
 * not busy: nobody is in the way, and it ends by itself.
 */
export interface Guard {
  readonly endsInMs: number;
  /** Since the server started, or since it was found to be another than before. */
  readonly ageMs: number;
  /** What to do about it where it is not wanted, for people. */
  readonly remedy?: string | undefined;
}

export interface Session {
  /** The ttl that the engine really keeps; it may be shorter than what was asked for. */
  readonly ttlMs: number;
  /** Joins the line. Reaps the dead before it refuses or queues, so that a user who only tries is never stuck. */
  enter(claim: Claim): Promise<Place>;
  /** Leaves, held or waiting; admits whoever fits now and wakes only them. False: it did not stand there. */
  leave(claim: ClaimRef): Promise<boolean>;
  /** Lowers the claim's weight to what it carries now (write → read): keeps its place, admits readers behind it. */
  reweigh(claim: Claim): Promise<void>;
  /**
   * Proves that we live and reconciles: where the roster does not match the engine's index of this session's claims,
   * the engine answers that index, and the core mends the difference. Evictions that were not pushed are told here.
   */
  beat(roster: Roster): Promise<Pulse>;
  /** Ends the session and frees all that it claimed. */
  close(): Promise<void>;
}

/** Mutex, read and write lock of one name are one line, a semaphore of that name is another. */
export type LineKind = 'lock' | 'semaphore';

export interface LineRef {
  readonly kind: LineKind;
  readonly name: string;
}

export interface ClaimRef {
  readonly id: string;
  readonly line: LineRef;
}

export interface Claim extends ClaimRef {
  /** Counts the claims of a session from 1; checksums are made of it. */
  readonly serial: number;
  readonly weight: number;
  readonly capacity: number;
  /** False: hold at once or be refused. */
  readonly wait: boolean;
  /** Opaque; the engine stores it and gives it back in `inspect`. */
  readonly note: string;
  /**
   * It is a read/write lock's. The rule needs nothing but weights; this is for engines where other libraries, with which we
   * share locks, keep mutexes and write locks apart. Default: false.
   */
  readonly rw?: boolean | undefined;
}

export type Place =
  | { readonly state: 'held'; readonly token: bigint }
  /** Guarded: only the guard that the listener was told of is in the way. */
  | { readonly state: 'waiting'; readonly guarded?: boolean }
  /** Only where `claim.wait` is false. The claim does not stand in line. */
  | { readonly state: 'refused'; readonly guarded?: boolean }
  /** The line has another capacity. The claim does not stand in line. */
  | { readonly state: 'mismatch'; readonly capacity: number }
  /** The engine does not know this session. */
  | { readonly state: 'gone' };

/** What we believe to have in the engine. A few numbers, whatever the number of claims. */
export interface Roster {
  readonly count: number;
  /** How many of them hold. A lost grant message shows up here. */
  readonly held: number;
  /** Sum of the serials, modulo 2^32. */
  readonly checksum: number;
  /** Claims with a call in flight: they may or may not stand in the index and are not counted above. */
  readonly unsettled: readonly string[];
}

export type Pulse =
  | { readonly alive: false }
  | {
      readonly alive: true;
      /** Everything this session has, given when it does not match the roster. */
      readonly index?: readonly IndexedClaim[];
      /** What validity counts from, where this beat proves only that an earlier one has counted. Default: when it was sent. */
      readonly since?: Moment | undefined;
    };

/** By both clocks of `Clock`. */
export interface Moment {
  readonly now: number;
  readonly wall: number;
}

export interface IndexedClaim extends ClaimRef {
  readonly state: 'held' | 'waiting';
  readonly token: bigint | undefined;
}

export interface LineQuery {
  readonly name?: string;
  readonly prefix?: string;
}

export interface EngineLine extends LineRef {
  readonly capacity: number;
  /** In line order. */
  readonly claims: readonly EngineClaim[];
}

export interface EngineClaim {
  readonly id: string;
  readonly state: 'held' | 'waiting';
  readonly weight: number;
  /** Absent where the engine mints it with the grant. */
  readonly token: bigint | undefined;
  /** Epoch milliseconds by the engine's clock. */
  readonly since: number;
  /** Absent for claims of other libraries. */
  readonly note: string | undefined;
}

/**
 * Small named values that only a token at least as new as the last one presented may read or overwrite.
 *
 * A fence keeps the highest reader's and the highest writer's token. A reader needs `token > maxWrite`, a writer
 * `token ≥ maxWrite` and `token > maxRead`. Tokens here are the user's (64 bits: compare them as integers, never as
 * doubles). Names may contain U+001F beside what users may write, which keeps the core's own registers apart.
 */
export interface Registers {
  /** With a fence: presents the token before it reads. */
  read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>>;
  /**
   * After `keepMs` since this write, a whole number, nobody needs the register any more: the engine forgets it, value and
   * fence. Never before that, and soon enough that what is over does not pile up, where `traits.forgets` is true. A later
   * write counts anew; a read changes nothing about it. Default: kept for ever.
   */
  write(name: string, value: string, token: bigint, keepMs?: number): Promise<Fenced<void>>;
}

export interface Fence {
  readonly token: bigint;
  readonly mode: 'read' | 'write';
}

export type Fenced<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly newest: bigint };

export interface RegisterEntry {
  readonly value: string;
  readonly token: bigint;
  /** Since it was written, by the engine's clock. */
  /** Below zero where the clock that it was written by was ahead of the one that it is read by. */
  readonly ageMs: number;
}
