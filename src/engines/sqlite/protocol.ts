/**
 * The protocol, as transactions on the tables of schema.ts. Every method runs inside one `BEGIN IMMEDIATE`, so it is
 * alone; nothing here waits.
 *
 *     session   who lives, until when (system-wide monotonic time), and which process it is
 *     line      capacity, sum of held weights, number of waiters; a line without claims has no row
 *     claim     one row each; tokens are the order in line; `held` = 1 for the longest prefix that fits
 *
 * - enter: reap what is in the way; the same claim again gives the same answer; mint max(last + 1, µs); append; hold if
 *   nobody waits and it fits. leave: remove, subtract its weight only if it held, admit. reap: remove *all* claims of the
 *   dead, waiting ones too, then admit.
 * - Dead is: expired by the monotonic clock of our own boot; or of our own pid namespace with no such process any more;
 *   or of a foreign boot (after a reboot, or another host) and not beaten for its ttl while we watched.
 * - Whoever is granted finds it by itself: it polls `data_version`, which costs next to nothing (index.ts).
 *
 * What can go wrong: the process dies inside a transaction, which SQLite rolls back; the machine dies, and the last
 * commits may be gone with it, but so are all who held. Registers must outlive that: registers.ts syncs them to disk.
 */
import type {
  Claim,
  ClaimRef,
  EngineLine,
  IndexedClaim,
  LineQuery,
  LineRef,
  OpenOptions,
  Place,
  Pulse,
  Roster,
} from '../../core/engine.js';
import { agrees, type StandingClaim } from '../../kit/roster.js';
import type { Database, Statement } from './client/driver.js';
import { host, isDead, monotonicMs } from './host.js';
import { FORGET } from './schema.js';

interface SessionRow {
  readonly id: string;
  readonly boot_id: string;
  readonly pid: number;
  readonly pid_ns: string | null;
  readonly start_time: string | null;
  readonly ttl_ms: number;
  readonly expires_ms: number;
  readonly beats: number;
}

interface ClaimRow extends LineRef {
  readonly id: string;
  readonly session: string;
  readonly serial: number;
  readonly weight: number;
  readonly held: number;
  readonly token: number;
  readonly since: number;
  readonly note: string;
  readonly evicted: string | null;
}

interface LineRow {
  readonly capacity: number;
  readonly held: number;
  readonly waiting: number;
}

const LINE = 'namespace = ? AND kind = ? AND name = ?';

const STATEMENTS = {
  openSession: `INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING`,
  isAlive: `SELECT 1 FROM session WHERE id = ? AND expires_ms > ?`,
  allSessions: `SELECT * FROM session WHERE namespace = ?`,
  removeSession: `DELETE FROM session WHERE id = ?`,
  // A session that is over is never brought back, not even if nobody has reaped it yet.
  beat: `UPDATE session SET expires_ms = ? + ttl_ms, beats = beats + 1 WHERE id = ? AND boot_id = ? AND expires_ms > ?`,

  line: `SELECT capacity, held, waiting FROM line WHERE ${LINE}`,
  everyLine: `SELECT kind, name, capacity FROM line WHERE namespace = ?`,
  linesNamed: `SELECT kind, name, capacity FROM line WHERE namespace = ? AND name = ?`,
  addToLine: `INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET held = held + excluded.held, waiting = waiting + excluded.waiting`,
  changeLine: `UPDATE line SET held = held + ?, waiting = waiting + ? WHERE ${LINE} RETURNING capacity, held, waiting`,
  removeLine: `DELETE FROM line WHERE ${LINE}`,

  claimById: `SELECT * FROM claim WHERE session = ? AND id = ?`,
  claimsInLine: `SELECT * FROM claim WHERE ${LINE} ORDER BY token`,
  claimsOfSession: `SELECT * FROM claim WHERE session = ?`,
  firstWaiting: `SELECT * FROM claim WHERE ${LINE} AND held = 0 ORDER BY token LIMIT 1`,
  addClaim: `INSERT INTO claim VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
  removeClaim: `DELETE FROM claim WHERE session = ? AND id = ? RETURNING kind, name, held, weight`,
  hold: `UPDATE claim SET held = 1 WHERE session = ? AND id = ?`,
  reweigh: `UPDATE claim SET weight = ? WHERE session = ? AND id = ?`,
  evict: `UPDATE claim SET evicted = ? WHERE id = ? AND namespace = ? AND kind IN ('lock', 'semaphore') AND name = ?`,

  forget: FORGET,

  mint: `UPDATE mint SET last_token = max(last_token + 1, ?) RETURNING last_token`,
};

export class Ledger {
  readonly #namespace: string;
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, Statement>>;
  /** Sessions of a foreign boot: since when, by our clock, their beat counter has not moved. */
  readonly #watched = new Map<string, { beats: number; since: number }>();

  constructor(database: Database, namespace: string) {
    this.#namespace = namespace;
    const prepared = Object.entries(STATEMENTS).map(([name, text]) => [name, database.prepare(text)]);
    this.#sql = Object.fromEntries(prepared) as Record<keyof typeof STATEMENTS, Statement>;
  }

  open({ id, ttlMs }: OpenOptions): void {
    const { bootId, pid, pidNamespace, startTime } = host;
    const expiresMs = monotonicMs() + ttlMs;
    this.#sql.openSession.run(
      id,
      this.#namespace,
      bootId,
      pid,
      pidNamespace ?? null,
      startTime ?? null,
      ttlMs,
      expiresMs,
    );
  }

  enter(session: string, claim: Claim): Place {
    if (!this.#isAlive(session)) return { state: 'gone' };
    const line = this.#lineFor(claim);
    const holds = line.waiting === 0 && line.held + claim.weight <= line.capacity;
    // A claim that stands already has made the line what it is: only then is it worth to look for it.
    if (line.held > 0 || line.waiting > 0) {
      const known = this.#sql.claimById.get(session, claim.id) as ClaimRow | undefined;
      if (known) return known.held ? { state: 'held', token: BigInt(known.token) } : { state: 'waiting' };
      if (line.capacity !== claim.capacity) return { state: 'mismatch', capacity: line.capacity };
      if (!holds && !claim.wait) return { state: 'refused' };
    }
    const token = this.#append(session, claim, holds);
    return holds ? { state: 'held', token: BigInt(token) } : { state: 'waiting' };
  }

  leave(session: string, { id }: ClaimRef): boolean {
    const claim = this.#sql.removeClaim.get(session, id) as ClaimRow | undefined;
    if (!claim) return false;
    this.#left(claim);
    return true;
  }

  reweigh(session: string, { id, weight }: Claim): void {
    const claim = this.#sql.claimById.get(session, id) as ClaimRow | undefined;
    if (!claim || weight >= claim.weight) return;
    this.#sql.reweigh.run(weight, session, id);
    this.#admit(claim, this.#changeLine(claim, claim.held ? weight - claim.weight : 0, 0));
  }

  /** Answers the index as well if it does not match, and what has been evicted. */
  beat(session: string, roster: Roster): { pulse: Pulse; evicted: readonly { id: string; reason: string }[] } {
    if (this.#sql.beat.run(monotonicMs(), session, host.bootId, monotonicMs()).changes === 0) {
      return { pulse: { alive: false }, evicted: [] };
    }
    this.reap();
    this.#sql.forget.run(Date.now());
    const claims = this.#sql.claimsOfSession.all(session) as unknown as ClaimRow[];
    const evicted = claims.flatMap(({ id, evicted: reason }) => (reason === null ? [] : [{ id, reason }]));
    return {
      pulse: agrees(roster, claims.map(standing)) ? { alive: true } : { alive: true, index: claims.map(indexed) },
      evicted,
    };
  }

  close(session: string): void {
    this.#bury([session]);
  }

  /** How a claim stands: the poll. A read, outside of any transaction. */
  look(session: string, id: string): { token: bigint | undefined; evicted: string | undefined } {
    const claim = this.#sql.claimById.get(session, id) as ClaimRow | undefined;
    return { token: claim?.held ? BigInt(claim.token) : undefined, evicted: claim?.evicted ?? undefined };
  }

  /** Whether `reap` would find anything. A read, outside of any transaction, so that the living are not disturbed. */
  hasDead(): boolean {
    return (this.#sql.allSessions.all(this.#namespace) as unknown as SessionRow[]).some((session) =>
      this.#isOver(session),
    );
  }

  reap(): void {
    const dead = (this.#sql.allSessions.all(this.#namespace) as unknown as SessionRow[]).filter((session) =>
      this.#isOver(session),
    );
    this.#bury(dead.map(({ id }) => id));
  }

  *inspect({ name, prefix }: LineQuery): Iterable<EngineLine> {
    const rows = (name === undefined
      ? this.#sql.everyLine.all(this.#namespace)
      : this.#sql.linesNamed.all(this.#namespace, name)) as unknown as (LineRef & { capacity: number })[];
    for (const { kind, name: lineName, capacity } of rows) {
      if (prefix !== undefined && !lineName.startsWith(prefix)) continue;
      const claims = this.#sql.claimsInLine.all(this.#namespace, kind, lineName) as unknown as ClaimRow[];
      yield { kind, name: lineName, capacity, claims: claims.map(viewed) };
    }
  }

  evict(name: string, claimId: string, reason: string): boolean {
    return this.#sql.evict.run(reason, claimId, this.#namespace, name).changes !== 0;
  }

  // --- steps ----------------------------------------------------------------------------------------------------

  /** The line as it is once the dead are out of it: they are looked for only if they could be in the way. */
  #lineFor({ line: { kind, name }, weight, capacity }: Claim): LineRow {
    const find = (): LineRow => {
      const row = this.#sql.line.get(this.#namespace, kind, name) as LineRow | undefined;
      return row ?? { capacity, held: 0, waiting: 0 };
    };
    const line = find();
    if (line.waiting === 0 && line.capacity === capacity && line.held + weight <= capacity) return line;
    this.reap();
    return find();
  }

  #isAlive(id: string): boolean {
    return this.#sql.isAlive.get(id, monotonicMs()) !== undefined;
  }

  #isOver(session: SessionRow): boolean {
    const { boot_id: bootId, pid, pid_ns: pidNamespace, start_time: startTime } = session;
    if (bootId !== host.bootId) return this.#hasFallenSilent(session);
    if (session.expires_ms <= monotonicMs()) return true;
    return isDead({ bootId, pid, pidNamespace: pidNamespace ?? undefined, startTime: startTime ?? undefined });
  }

  #hasFallenSilent({ id, beats, ttl_ms: ttlMs }: SessionRow): boolean {
    const now = monotonicMs();
    const watched = this.#watched.get(id);
    if (watched?.beats !== beats) {
      this.#watched.set(id, { beats, since: now });
      return false;
    }
    return now - watched.since >= ttlMs;
  }

  #append(
    session: string,
    { id, serial, weight, capacity, note, line: { kind, name } }: Claim,
    holds: boolean,
  ): number {
    const { last_token: token } = this.#sql.mint.get(Math.floor(Date.now() * 1_000)) as { last_token: number };
    this.#sql.addClaim.run(
      session,
      id,
      token,
      this.#namespace,
      kind,
      name,
      serial,
      weight,
      holds ? 1 : 0,
      Date.now(),
      note,
    );
    this.#sql.addToLine.run(this.#namespace, kind, name, capacity, holds ? weight : 0, holds ? 0 : 1);
    return token;
  }

  #bury(sessions: readonly string[]): void {
    for (const id of sessions) {
      this.#watched.delete(id);
      this.#sql.removeSession.run(id);
    }
    for (const id of sessions) {
      for (const { id: claimId } of this.#sql.claimsOfSession.all(id) as unknown as ClaimRow[]) {
        // On the way, an earlier step may have granted it: what counts is how it stands now.
        this.#left(this.#sql.removeClaim.get(id, claimId) as unknown as ClaimRow);
      }
    }
  }

  #left(claim: ClaimRow): void {
    this.#admit(claim, this.#changeLine(claim, claim.held ? -claim.weight : 0, claim.held ? 0 : -1));
  }

  #changeLine({ kind, name }: LineRef, heldBy: number, waitingBy: number): LineRow {
    return this.#sql.changeLine.get(heldBy, waitingBy, this.#namespace, kind, name) as unknown as LineRow;
  }

  #admit({ kind, name }: LineRef, line: LineRow): void {
    while (line.waiting > 0) {
      const next = this.#sql.firstWaiting.get(this.#namespace, kind, name) as unknown as ClaimRow;
      if (line.held + next.weight > line.capacity) return;
      this.#sql.hold.run(next.session, next.id);
      line = this.#changeLine(next, next.weight, -1);
    }
    if (line.held === 0) this.#sql.removeLine.run(this.#namespace, kind, name);
  }
}

function standing({ id, serial, held }: ClaimRow): StandingClaim {
  return { id, serial, held: Boolean(held) };
}

function indexed({ id, kind, name, held, token }: ClaimRow): IndexedClaim {
  return { id, line: { kind, name }, state: held ? 'held' : 'waiting', token: BigInt(token) };
}

function viewed({ id, held, weight, token, since, note }: ClaimRow): EngineLine['claims'][number] {
  return { id, state: held ? 'held' : 'waiting', weight, token: BigInt(token), since, note };
}
