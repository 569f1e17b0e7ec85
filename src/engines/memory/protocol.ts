/**
 * The one rule on an array: the reference for every other engine, and the server in simulations.
 *
 * A space has sessions, lines and registers, and is told the time with every call, so it runs under any clock. All
 * steps are synchronous, hence atomic:
 *
 * - A session lives until `expiresAt`; only a beat moves that. Whoever comes by after it reaps: the dead session's
 *   claims, held *and* waiting, leave their lines, and whoever fits then is granted.
 * - A claim's token is minted when it enters: max(last + 1, wall clock in µs). Order in line is order of tokens.
 * - A line with no claims is forgotten, and with it its capacity.
 * - A register that is kept for a time is not there any more from then on. What nobody asks for goes with the reaping.
 */
import type { Clock } from '../../core/clock.js';
import type {
  Claim,
  ClaimRef,
  EngineLine,
  Fence,
  Fenced,
  IndexedClaim,
  LineKind,
  LineQuery,
  LineRef,
  Place,
  Pulse,
  RegisterEntry,
  Roster,
  SessionListener,
} from '../../core/engine.js';
import { isStale, newest } from '../../core/fence.js';
import { Line, type Spot } from '../../core/line.js';
import { agrees, type StandingClaim } from '../../kit/roster.js';

/** The space's own time: monotonic for expiry, wall for tokens and for people. */
export interface SpaceTime {
  readonly now: number;
  readonly wall: number;
}

export function timeOf(clock: Clock): SpaceTime {
  return { now: clock.now(), wall: clock.wall() };
}

interface SpaceSession {
  readonly id: string;
  readonly ttlMs: number;
  readonly listener: SessionListener;
  readonly claims: Map<string, SpaceClaim>;
  expiresAt: number;
}

interface SpaceClaim {
  readonly claim: Claim;
  readonly session: SpaceSession;
  readonly line: SpaceLine;
  readonly token: bigint;
  readonly since: number;
  spot: Spot<SpaceClaim>;
  evicted: string | undefined;
}

interface SpaceLine {
  readonly ref: LineRef;
  readonly line: Line<SpaceClaim>;
}

interface SpaceRegister {
  value: string | undefined;
  token: bigint;
  writtenAt: number;
  keptUntil: number;
  maxRead: bigint;
  maxWrite: bigint;
}

/** How long between two looks for registers whose time is over. */
const FORGET_EVERY_MS = 1_000;

export class Space {
  readonly #sessions = new Map<string, SpaceSession>();
  readonly #lines: Record<LineKind, Map<string, SpaceLine>> = { lock: new Map(), semaphore: new Map() };
  readonly #registers = new Map<string, SpaceRegister>();
  /** The names of those that are not kept for ever. */
  readonly #ending = new Set<string>();
  #forgetAt = 0;
  #lastToken = 0n;
  /** No session dies before this; a lower bound, so that a call need not look at every session. */
  #nextDeath = Number.POSITIVE_INFINITY;

  /** When the next session may be dead, or never. */
  get nextDeath(): number {
    return this.#nextDeath;
  }

  get claimCount(): number {
    let count = 0;
    for (const { line } of this.#linesOf(undefined)) count += line.size;
    return count;
  }

  get registerCount(): number {
    return this.#registers.size;
  }

  open(id: string, ttlMs: number, listener: SessionListener, time: SpaceTime): void {
    if (this.#sessions.has(id)) return;
    const expiresAt = time.now + ttlMs;
    this.#sessions.set(id, { id, ttlMs, listener, claims: new Map(), expiresAt });
    this.#nextDeath = Math.min(this.#nextDeath, expiresAt);
  }

  enter(sessionId: string, claim: Claim, time: SpaceTime): Place {
    this.reap(time);
    const session = this.#sessions.get(sessionId);
    if (!session) return { state: 'gone' };
    const known = session.claims.get(claim.id);
    if (known) return place(known);
    const at = this.#line(claim);
    if (at.line.capacity !== claim.capacity) return { state: 'mismatch', capacity: at.line.capacity };
    if (!claim.wait && !at.line.fits(claim.weight)) return { state: 'refused' };
    return place(this.#append(session, at, claim, time));
  }

  leave(sessionId: string, ref: ClaimRef, time: SpaceTime): boolean {
    this.reap(time);
    const session = this.#sessions.get(sessionId);
    const claim = session?.claims.get(ref.id);
    if (!claim) return false;
    this.#remove(claim);
    return true;
  }

  reweigh(sessionId: string, ref: ClaimRef, weight: number): void {
    const claim = this.#sessions.get(sessionId)?.claims.get(ref.id);
    if (claim) this.#notify(claim.line.line.lighten(claim.spot, weight));
  }

  beat(sessionId: string, roster: Roster, time: SpaceTime): Pulse {
    this.reap(time);
    const session = this.#sessions.get(sessionId);
    if (!session) return { alive: false };
    session.expiresAt = time.now + session.ttlMs;
    for (const { claim, evicted } of [...session.claims.values()]) {
      if (evicted !== undefined) session.listener.lost(claim.id, { reason: 'evicted', detail: evicted });
    }
    return agrees(roster, standing(session)) ? { alive: true } : { alive: true, index: index(session) };
  }

  close(sessionId: string): void {
    const session = this.#sessions.get(sessionId);
    if (session) this.#bury([session]);
  }

  /** Frees what dead sessions had, and forgets registers. */
  reap(time: SpaceTime): void {
    this.#forget(time);
    if (time.now < this.#nextDeath) return;
    let nextDeath = Number.POSITIVE_INFINITY;
    const dead: SpaceSession[] = [];
    for (const session of this.#sessions.values()) {
      if (session.expiresAt <= time.now) dead.push(session);
      else nextDeath = Math.min(nextDeath, session.expiresAt);
    }
    this.#nextDeath = nextDeath;
    this.#bury(dead);
  }

  *inspect({ name, prefix }: LineQuery): Iterable<EngineLine> {
    for (const { ref, line } of [...this.#linesOf(name)]) {
      if (prefix !== undefined && !ref.name.startsWith(prefix)) continue;
      const claims = [...line].map(({ item, held, weight }) => ({
        id: item.claim.id,
        state: held ? ('held' as const) : ('waiting' as const),
        weight,
        token: item.token,
        since: item.since,
        note: item.claim.note,
      }));
      yield { ...ref, capacity: line.capacity, claims };
    }
  }

  evict(name: string, claimId: string, reason: string): boolean {
    for (const { line } of this.#linesOf(name)) {
      for (const { item } of line) {
        if (item.claim.id !== claimId) continue;
        item.evicted = reason;
        item.session.listener.lost(claimId, { reason: 'evicted', detail: reason });
        return true;
      }
    }
    return false;
  }

  read(name: string, fence: Fence | undefined, time: SpaceTime): Fenced<RegisterEntry | undefined> {
    const register = fence ? this.#register(name, time) : this.#found(name, time);
    if (register && fence && !present(register, fence))
      return { ok: false, newest: newest(register.maxRead, register.maxWrite) };
    if (register?.value === undefined) return { ok: true, value: undefined };
    const { value, token, writtenAt } = register;
    return { ok: true, value: { value, token, ageMs: time.now - writtenAt } };
  }

  write(name: string, value: string, token: bigint, time: SpaceTime, keepMs = Infinity): Fenced<void> {
    this.#forget(time);
    const register = this.#register(name, time);
    if (!present(register, { token, mode: 'write' }))
      return { ok: false, newest: newest(register.maxRead, register.maxWrite) };
    Object.assign(register, { value, token, writtenAt: time.now, keptUntil: time.now + keepMs });
    if (keepMs === Infinity) this.#ending.delete(name);
    else this.#ending.add(name);
    return { ok: true, value: undefined };
  }

  /** Of one name, or of all. */
  *#linesOf(name: string | undefined): Iterable<SpaceLine> {
    for (const lines of Object.values(this.#lines)) {
      if (name === undefined) {
        yield* lines.values();
      } else {
        const line = lines.get(name);
        if (line) yield line;
      }
    }
  }

  #line(claim: Claim): SpaceLine {
    const { kind, name } = claim.line;
    let line = this.#lines[kind].get(name);
    if (!line) {
      line = { ref: claim.line, line: new Line(claim.capacity) };
      this.#lines[kind].set(name, line);
    }
    return line;
  }

  #append(session: SpaceSession, line: SpaceLine, claim: Claim, time: SpaceTime): SpaceClaim {
    const micros = BigInt(Math.floor(time.wall * 1000));
    this.#lastToken = micros > this.#lastToken ? micros : this.#lastToken + 1n;
    const token = this.#lastToken;
    const entry = { claim, session, line, token, since: time.wall, evicted: undefined } as Omit<
      SpaceClaim,
      'spot'
    > as SpaceClaim;
    entry.spot = line.line.enter(entry, claim.weight);
    session.claims.set(claim.id, entry);
    return entry;
  }

  #remove(entry: SpaceClaim): void {
    entry.session.claims.delete(entry.claim.id);
    this.#notify(entry.line.line.leave(entry.spot));
    const { line, ref } = entry.line;
    if (line.size === 0) this.#lines[ref.kind].delete(ref.name);
  }

  /** All at once: else a claim of one that died in the same moment would be granted on the way, and told so. */
  #bury(dead: readonly SpaceSession[]): void {
    for (const { id } of dead) this.#sessions.delete(id);
    for (const { claims } of dead) for (const claim of [...claims.values()]) this.#remove(claim);
  }

  /** Tells those who hold now; not the dead, whose claims leave in this same step. */
  #notify(admitted: readonly Spot<SpaceClaim>[]): void {
    for (const { item } of admitted) {
      if (this.#sessions.has(item.session.id)) item.session.listener.granted(item.claim.id, item.token);
    }
  }

  #register(name: string, time: SpaceTime): SpaceRegister {
    let register = this.#found(name, time);
    if (!register) {
      register = { value: undefined, token: 0n, writtenAt: 0, keptUntil: Infinity, maxRead: 0n, maxWrite: 0n };
      this.#registers.set(name, register);
    }
    return register;
  }

  #found(name: string, time: SpaceTime): SpaceRegister | undefined {
    const register = this.#registers.get(name);
    if (!register || time.now < register.keptUntil) return register;
    this.#registers.delete(name);
    this.#ending.delete(name);
    return undefined;
  }

  /** All are looked at, so the more there are the more rarely: a register costs one look in as many ms as there are. */
  #forget(time: SpaceTime): void {
    if (time.now < this.#forgetAt) return;
    for (const name of this.#ending) this.#found(name, time);
    this.#forgetAt = time.now + Math.max(FORGET_EVERY_MS, this.#ending.size);
  }
}

function place({ spot, token }: SpaceClaim): Place {
  return spot.held ? { state: 'held', token } : { state: 'waiting' };
}

function* standing({ claims }: SpaceSession): Iterable<StandingClaim> {
  for (const { claim, spot } of claims.values()) yield { id: claim.id, serial: claim.serial, held: spot.held };
}

function index(session: SpaceSession): IndexedClaim[] {
  return [...session.claims.values()].map(({ claim, spot, token }) => ({
    id: claim.id,
    line: claim.line,
    state: spot.held ? 'held' : 'waiting',
    token,
  }));
}

function present(register: SpaceRegister, fence: Fence): boolean {
  const { maxRead, maxWrite } = register;
  const { token, mode } = fence;
  if (isStale(fence, maxRead, maxWrite)) return false;
  if (mode === 'write') register.maxWrite = token;
  else if (token > maxRead) register.maxRead = token;
  return true;
}
