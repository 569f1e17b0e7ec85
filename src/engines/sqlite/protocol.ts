/**
 * The protocol, as transactions on the tables of schema.ts. Every method runs inside one `BEGIN IMMEDIATE`, so it is
 * alone; nothing here waits.
 *
 *     session   who lives, until when (system-wide monotonic time), and which process it is
 *     watch     what is seen of sessions whose times can't be compared with ours
 *     claim     one row each; tokens are the order in line; `held` = 1 for the longest prefix that fits
 *     line      what its claims add up to: sum of held weights, number of waiters; a line without claims has no row
 *
 * - enter: reap what is in the way; the same claim again gives the same answer; mint max(last + 1, µs); append; hold if
 *   nobody waits and it fits. leave: remove, subtract its weight only if it held, admit. reap: remove *all* claims of the
 *   dead, waiting ones too, then admit.
 * - Who is dead stands in census.ts.
 * - Claims are the truth. A row that somebody deletes by hand costs what it stood for and nothing else, so a line whose numbers
 *   do not fit its claims is counted anew: at once where they can't be right, before anybody is refused or waits because of
 *   them, and with every beat of those who wait in it.
 * - Whoever is granted finds it by itself: it looks from time to time (engine.ts). What is told it (`takeTold`) is a hint to look
 *   now.
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
import { Date } from '../../core/real-time.js';
import { agrees, type StandingClaim } from '../../kit/roster.js';
import { Census } from './census.js';
import type { Database, Statement } from './client/driver.js';
import { host, monotonicMs } from './host.js';
import { FORGET } from './schema.js';

interface ClaimRow extends LineRef {
  readonly id: string;
  readonly session: string;
  readonly serial: number;
  readonly weight: number;
  readonly capacity: number;
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
/** As floats: at an integer beyond 2^53, which only a stranger can have written, drivers throw. */
const COUNTS = 'CAST(capacity AS REAL) AS capacity, CAST(held AS REAL) AS held, CAST(waiting AS REAL) AS waiting';
/** The claims that we can show: others were not written by us. */
const OURS = `kind IN ('lock', 'semaphore') AND typeof(id) = 'text' AND typeof(name) = 'text'
  AND typeof(token) = 'integer' AND token BETWEEN 0 AND ${Number.MAX_SAFE_INTEGER}`;

/** Who stands in a line: a claim of nobody counts for nothing, whatever somebody has written into it. */
const IN_LINE = `${LINE} AND EXISTS (SELECT 1 FROM session WHERE session.id = claim.session)`;

const STATEMENTS = {
  openSession: `INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING`,
  isAlive: `SELECT 1 FROM session WHERE id = ? AND expires_ms > ?`,
  removeSession: `DELETE FROM session WHERE id = ?`,
  endWatches: `DELETE FROM watch WHERE session NOT IN (SELECT id FROM session)`,
  // A session that is over is never brought back, not even if nobody has reaped it yet.
  beat: `UPDATE session SET expires_ms = ? + ttl_ms, beats = beats + 1 WHERE id = ? AND boot_id = ? AND expires_ms > ?`,

  line: `SELECT ${COUNTS} FROM line WHERE ${LINE}`,
  everyLine: `SELECT DISTINCT kind, name FROM claim WHERE namespace = ? AND ${OURS}`,
  linesNamed: `SELECT DISTINCT kind, name FROM claim WHERE namespace = ? AND name = ? AND ${OURS}`,
  addToLine: `INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET held = held + excluded.held, waiting = waiting + excluded.waiting`,
  changeLine: `UPDATE line SET held = held + ?, waiting = waiting + ? WHERE ${LINE} RETURNING ${COUNTS}`,
  removeLine: `DELETE FROM line WHERE ${LINE}`,
  countLine: `INSERT OR REPLACE INTO line
    SELECT namespace, kind, name, min(capacity), total(weight * (held = 1)), total(held = 0)
    FROM claim WHERE ${IN_LINE} GROUP BY namespace, kind, name RETURNING ${COUNTS}`,
  // The lines in which a session waits, if their numbers do not fit their claims.
  miscounted: `SELECT mine.kind, mine.name
    FROM (SELECT DISTINCT namespace, kind, name FROM claim WHERE session = ? AND held = 0) AS mine
    LEFT JOIN line USING (namespace, kind, name)
    WHERE (SELECT total(weight * (held = 1)) = line.held AND total(held = 0) = line.waiting FROM claim
      WHERE claim.namespace = mine.namespace AND claim.kind = mine.kind AND claim.name = mine.name
        AND EXISTS (SELECT 1 FROM session WHERE session.id = claim.session)) IS NOT TRUE`,

  claimById: `SELECT * FROM claim WHERE session = ? AND id = ?`,
  claimsInLine: `SELECT id, token, held, CAST(weight AS REAL) AS weight, CAST(capacity AS REAL) AS capacity,
      CAST(since AS REAL) AS since, CAST(note AS TEXT) AS note
    FROM claim WHERE ${LINE} AND ${OURS} ORDER BY token`,
  claimsOfSession: `SELECT * FROM claim WHERE session = ?`,
  firstWaiting: `SELECT session, id, kind, name, CAST(weight AS REAL) AS weight
    FROM claim WHERE ${IN_LINE} AND held = 0 ORDER BY token LIMIT 1`,
  addClaim: `INSERT INTO claim VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
  removeClaim: `DELETE FROM claim WHERE session = ? AND id = ?
    RETURNING kind, name, CAST(held AS REAL) AS held, CAST(weight AS REAL) AS weight`,
  linesOfSession: `SELECT DISTINCT kind, name FROM claim WHERE session = ? AND namespace = ?`,
  removeClaims: `DELETE FROM claim WHERE session = ?`,
  hold: `UPDATE claim SET held = 1 WHERE session = ? AND id = ?`,
  reweigh: `UPDATE claim SET weight = ? WHERE session = ? AND id = ?`,
  place: `SELECT 1 + count(*) AS place FROM claim AS mine JOIN claim AS other USING (namespace, kind, name)
    WHERE mine.session = ? AND mine.id = ? AND other.held = 0 AND other.token < mine.token`,
  evict: `UPDATE claim SET evicted = ? WHERE id = ? AND namespace = ? AND kind IN ('lock', 'semaphore') AND name = ?
    RETURNING session`,

  forget: FORGET,

  mint: `UPDATE mint SET last_token = max(last_token + 1, ?) RETURNING last_token`,
  startMint: `INSERT INTO mint SELECT max(coalesce(max(token), 0) + 1, ?) FROM claim RETURNING last_token`,
};

export class Ledger {
  readonly #namespace: string;
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, Statement>>;
  readonly #census: Census;
  /** Sessions that the open transaction has something to tell. */
  readonly #told = new Set<string>();

  constructor(database: Database, namespace: string) {
    this.#namespace = namespace;
    this.#census = new Census(database, namespace);
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
    this.#changed(claim, claim.held ? weight - claim.weight : 0, 0);
  }

  /**
   * Answers the index as well if it does not match, and what has been evicted.
   * @param reap where there is something to reap, which is asked before (`hasNews`).
   */
  beat(
    session: string,
    roster: Roster,
    reap: boolean,
  ): { pulse: Pulse; evicted: readonly { id: string; reason: string }[] } {
    if (this.#sql.beat.run(monotonicMs(), session, host.bootId, monotonicMs()).changes === 0) {
      return { pulse: { alive: false }, evicted: [] };
    }
    if (reap) this.reap();
    for (const line of this.#sql.miscounted.all(session) as unknown as LineRef[]) this.#count(line);
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

  /** How many wait in its line up to this one: 1 is next. A read, outside of any transaction. */
  place(session: string, id: string): number {
    return (this.#sql.place.get(session, id) as { place: number }).place;
  }

  /** Whether `reap` would find anything. A read, outside of any transaction. */
  hasNews(): boolean {
    return this.#census.hasNews();
  }

  /** Whether `reap` could help a session that waits. A read, outside of any transaction, so that the living are not disturbed. */
  hasNewsFor(session: string): boolean {
    return this.#census.hasNewsFor(session);
  }

  /** Who was granted or evicted since the last call. */
  takeTold(): string[] {
    const told = [...this.#told];
    this.#told.clear();
    return told;
  }

  reap(): void {
    this.#bury(this.#census.dead());
  }

  *inspect({ name, prefix }: LineQuery): Iterable<EngineLine> {
    const rows = (name === undefined
      ? this.#sql.everyLine.all(this.#namespace)
      : this.#sql.linesNamed.all(this.#namespace, name)) as unknown as LineRef[];
    for (const { kind, name: lineName } of rows) {
      if (prefix !== undefined && !lineName.startsWith(prefix)) continue;
      const claims = this.#sql.claimsInLine.all(this.#namespace, kind, lineName) as unknown as ClaimRow[];
      yield { kind, name: lineName, capacity: claims[0]!.capacity, claims: claims.map(viewed) };
    }
  }

  evict(name: string, claimId: string, reason: string): boolean {
    const claim = this.#sql.evict.get(reason, claimId, this.#namespace, name) as ClaimRow | undefined;
    if (claim) this.#told.add(claim.session);
    return claim !== undefined;
  }

  // --- steps ----------------------------------------------------------------------------------------------------

  /** The line as it is once the dead are out of it: they are looked for only if they could be in the way. */
  #lineFor({ line: ref, weight, capacity }: Claim): LineRow {
    const empty = { capacity, held: 0, waiting: 0 };
    const line = this.#line(ref) ?? this.#count(ref) ?? empty;
    if (line.waiting === 0 && line.capacity === capacity && line.held + weight <= capacity) return line;
    // To look at every process takes longer than all the rest, and nobody else can write meanwhile.
    if (this.#census.deadIn(ref).length > 0) this.reap();
    const reaped = this.#line(ref);
    // Behind somebody who waits one waits rightly: should the numbers be wrong, that one's next beat finds it.
    if (reaped?.capacity === capacity && reaped.waiting > 0 && this.#firstWaiting(ref)) return reaped;
    return this.#count(ref) ?? empty;
  }

  /** Undefined: nobody stands there, or these numbers can't be right. */
  #line({ kind, name }: LineRef): LineRow | undefined {
    const line = this.#sql.line.get(this.#namespace, kind, name) as LineRow | undefined;
    return line && isPossible(line) ? line : undefined;
  }

  /** Counts a line anew, from its claims, and admits whoever fits. Undefined: nobody stands there. */
  #count(ref: LineRef): LineRow | undefined {
    const line = this.#sql.countLine.get(this.#namespace, ref.kind, ref.name) as LineRow | undefined;
    if (line) return this.#admit(ref, line);
    this.#sql.removeLine.run(this.#namespace, ref.kind, ref.name);
    return undefined;
  }

  #firstWaiting({ kind, name }: LineRef): ClaimRow | undefined {
    return this.#sql.firstWaiting.get(this.#namespace, kind, name) as ClaimRow | undefined;
  }

  #isAlive(id: string): boolean {
    return this.#sql.isAlive.get(id, monotonicMs()) !== undefined;
  }

  #append(
    session: string,
    { id, serial, weight, capacity, note, line: { kind, name } }: Claim,
    holds: boolean,
  ): number {
    const token = this.#mint();
    this.#sql.addClaim.run(
      session,
      id,
      token,
      this.#namespace,
      kind,
      name,
      serial,
      weight,
      capacity,
      holds ? 1 : 0,
      Date.now(),
      note,
    );
    this.#sql.addToLine.run(this.#namespace, kind, name, capacity, holds ? weight : 0, holds ? 0 : 1);
    return token;
  }

  #mint(): number {
    const us = Math.floor(Date.now() * 1_000);
    const { last_token: token } = (this.#sql.mint.get(us) ?? this.#sql.startMint.get(us)) as { last_token: number };
    return token;
  }

  #bury(sessions: readonly string[]): void {
    if (sessions.length === 0) return;
    for (const id of sessions) this.#sql.removeSession.run(id);
    this.#sql.endWatches.run();
    const lines = sessions.flatMap((id) => this.#sql.linesOfSession.all(id, this.#namespace) as unknown as LineRef[]);
    for (const id of sessions) this.#sql.removeClaims.run(id);
    // Counted anew, not subtracted: nobody knows who has written the claims of the dead.
    for (const line of new Map(lines.map((ref) => [JSON.stringify(ref), ref])).values()) this.#count(line);
  }

  #left(claim: ClaimRow): void {
    this.#changed(claim, claim.held ? -claim.weight : 0, claim.held ? 0 : -1);
  }

  #changed(ref: LineRef, heldBy: number, waitingBy: number): void {
    const line = this.#changeLine(ref, heldBy, waitingBy);
    if (line && line.held >= 0 && line.waiting >= 0) this.#admit(ref, line);
    else this.#count(ref);
  }

  #changeLine({ kind, name }: LineRef, heldBy: number, waitingBy: number): LineRow | undefined {
    return this.#sql.changeLine.get(heldBy, waitingBy, this.#namespace, kind, name) as LineRow | undefined;
  }

  /** Gives the line as it is then; undefined if nobody is left. */
  #admit(ref: LineRef, line: LineRow): LineRow | undefined {
    while (line.waiting > 0) {
      const next = this.#firstWaiting(ref);
      if (!next) return this.#count(ref);
      if (line.held + next.weight > line.capacity) return line;
      this.#sql.hold.run(next.session, next.id);
      this.#told.add(next.session);
      line = this.#changeLine(ref, next.weight, -1)!;
    }
    if (line.held > 0) return line;
    this.#sql.removeLine.run(this.#namespace, ref.kind, ref.name);
    return undefined;
  }
}

/** A line has a row while somebody stands in it. */
function isPossible({ held, waiting }: LineRow): boolean {
  return held >= 0 && waiting >= 0 && held + waiting > 0;
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
