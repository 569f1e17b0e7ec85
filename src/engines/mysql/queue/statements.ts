/**
 * The steps of `queue` as plain statements, for a user who may not create or run stored procedures. They are those of
 * protocol.ts, under the same locks, and every step is one transaction: clients of both kinds may stand in one line.
 *
 * One thing is the other way round: enter locks its line before its session. The line may be locked for long here (see
 * below), and who waits for it with its session locked could not beat. If somebody buries that session at the same moment,
 * InnoDB finds the deadlock, and both do it again.
 *
 * What it costs: nine round trips or so instead of one, in most of which the line's row is locked, so a line that is busy
 * serves fewer. And a client can stop in the middle of a step: others wait for that line until the server has ended its
 * connection (`Database.transact`), which takes as long as one call may.
 */
import type { CallOptions, Database, Transaction } from '../client/database.js';
import { type Row, text } from '../client/port.js';
import type { LineKey, Steps, StepValues } from './protocol.js';
import { isOutOfRange } from '../client/errors.js';
import { NOW } from '../tables.js';

/** Sessions in one reap, claims in one transaction of a burial, and claims that are looked at to admit some. */
const REAP_AT_ONCE = 16;
const BURY_AT_ONCE = 50;
const ADMIT_AT_ONCE = 64;

const LINE = 'namespace = ? AND kind = ? AND name = ?';

interface LineRow {
  readonly key: LineKey;
  capacity: number;
  held: number;
  waiting: number;
  frontier: bigint;
  last: bigint;
}

export function statementSteps(database: Database, prefix: string): Steps {
  const statements: StepTable = new Statements(database, prefix);
  return async (step, values, options) => statements[step](values, options);
}

type Answer = Promise<readonly Row[]>;

/** A method for each procedure, with its parameters and its answer. */
type StepTable = {
  readonly [Step in keyof StepValues]: (values: StepValues[Step], options: CallOptions) => Answer;
};

class Statements implements StepTable {
  readonly #database: Database;
  readonly #p: string;

  constructor(database: Database, prefix: string) {
    this.#database = database;
    this.#p = prefix;
  }

  async enter_3(values: StepValues['enter_3'], options: CallOptions): Answer {
    const first = await this.#database.transact((tx) => this.#enter(tx, values, true), options);
    if (first) return [first];
    // Sessions are locked before lines: the line was given back first.
    await this.reap_2([values[2]]);
    return [(await this.#database.transact((tx) => this.#enter(tx, values, false), options))!];
  }

  leave_2([session, id, ...key]: StepValues['leave_2'], options: CallOptions): Answer {
    return this.#database.transact(async (tx) => {
      const line = await this.#lock(tx, key);
      const claim = await this.#claim(tx, session, id);
      if (!line || !claim) return [[0, 0]];
      await tx.change(`DELETE FROM ${this.#p}claim WHERE ${LINE} AND token = ?`, [...line.key, claim.token]);
      if (claim.isHeld) line.held -= claim.weight;
      else line.waiting -= 1;
      const before = line.frontier;
      await this.#admit(tx, line);
      await this.#write(tx, line);
      return [[1, line.frontier > before ? 1 : 0]];
    }, options);
  }

  reweigh_2([session, id, namespace, kind, name, weight]: StepValues['reweigh_2'], options: CallOptions): Answer {
    return this.#database.transact(async (tx) => {
      const line = await this.#lock(tx, [namespace, kind, name]);
      const claim = await this.#claim(tx, session, id);
      if (!line || !claim || weight >= claim.weight) return [];
      const sql = `UPDATE ${this.#p}claim SET weight = ? WHERE ${LINE} AND token = ?`;
      await tx.change(sql, [weight, ...line.key, claim.token]);
      if (claim.isHeld) line.held -= claim.weight - weight;
      await this.#admit(tx, line);
      await this.#write(tx, line);
      return [];
    }, options);
  }

  async beat_1([session, namespace, unsettled]: StepValues['beat_1'], options: CallOptions): Answer {
    const p = this.#p;
    const renew = `UPDATE ${p}session SET expires = ${NOW} + ttl WHERE id = ? AND expires > ${NOW}`;
    if ((await this.#database.change(renew, [session], options)).found === 0) return [];
    return this.#database.rows(
      `SELECT COUNT(*), CAST(COALESCE(SUM(held), 0) AS CHAR), CAST(COALESCE(SUM(serial), 0) MOD 4294967296 AS CHAR),
          EXISTS (SELECT 1 FROM ${p}claim WHERE session = ? AND evicted IS NOT NULL),
          EXISTS (SELECT 1 FROM ${p}session WHERE namespace = ? AND expires <= ${NOW})
        FROM ${p}claim WHERE session = ? AND NOT FIND_IN_SET(id, ?)`,
      [session, namespace, session, unsettled],
      options,
    );
  }

  async reap_2([namespace]: StepValues['reap_2']): Answer {
    const find = `SELECT id FROM ${this.#p}session WHERE namespace = ? AND expires <= ${NOW} ORDER BY RAND() LIMIT 1`;
    for (let count = 0; count < REAP_AT_ONCE; count += 1) {
      const [row] = await this.#database.rows(find, [namespace]);
      if (!row) break;
      await this.bury_2([row[0] as Buffer, 0]).catch((error: unknown) => {
        if (!isOutOfRange(error)) throw error;
      });
    }
    return [];
  }

  async bury_2([session, force]: StepValues['bury_2']): Answer {
    while (await this.#database.transact((tx) => this.#bury(tx, session, force === 1)));
    return [];
  }

  async clean_1([namespace, kind, after, many, idleUs]: StepValues['clean_1']): Answer {
    const p = this.#p;
    const [chunk] = await this.#database.rows(
      `SELECT MAX(name), COUNT(*), CAST(MAX(last) AS CHAR) FROM (
        SELECT name, last FROM ${p}line WHERE namespace = ? AND kind = ? AND name > ? ORDER BY name LIMIT ?) AS chunk`,
      [namespace, kind, after, many],
    );
    const [until, count, last] = chunk!;
    if (Number(count) === 0) return [[null, 0]];
    const floor = BigInt(text(last));
    await this.#database.change(
      `INSERT INTO ${p}floor VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)`,
      [namespace, floor, floor],
    );
    const deleted = await this.#database.transact((tx) =>
      tx.change(
        `DELETE FROM ${p}line WHERE namespace = ? AND kind = ? AND name > ? AND name <= ?
          AND held = 0 AND waiting = 0 AND touched < ${NOW} - ? AND last <= ?`,
        [namespace, kind, after, until as Buffer, idleUs, floor],
      ),
    );
    return [[Number(count) < many ? null : until, deleted]];
  }

  /** Undefined: something is in the way and somebody is dead, who may be asked to be buried first. */
  async #enter(tx: Transaction, values: StepValues['enter_3'], mayReap: boolean): Promise<Row | undefined> {
    const [session, id, namespace, kind, name, serial, weight, capacity, wait, note] = values;
    const key: LineKey = [namespace, kind, name];
    const alive = `SELECT CAST(expires AS CHAR) FROM ${this.#p}session WHERE id = ? LOCK IN SHARE MODE`;
    const known = await this.#lock(tx, key);
    const line = known ?? (await this.#begin(tx, key, capacity));
    const [sessionRow] = await tx.rows(alive, [session]);
    const facts = await this.#facts(tx, session, id, namespace);
    if (!sessionRow || BigInt(text(sessionRow[0])) <= facts.now) return ['gone', null];
    if (!known && facts.floor > line.last) line.last = facts.floor;
    let holds = line.waiting === 0 && line.held + weight <= line.capacity;
    if (line.held === 0 && line.waiting === 0) {
      line.capacity = capacity;
      holds = true;
    } else if (facts.token !== undefined) {
      return [facts.isHeld ? 'held' : 'waiting', facts.token.toString()];
    } else if (mayReap && facts.isSomebodyDead && !(holds && line.capacity === capacity)) {
      return undefined;
    }
    if (line.capacity !== capacity) return ['mismatch', line.capacity];
    if (!holds && wait === 0) return ['refused', null];
    line.last = line.last >= facts.now ? line.last + 1n : facts.now;
    await tx.change(`INSERT INTO ${this.#p}claim VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, NULL)`, [
      ...[...key, line.last, session, id, serial, weight, holds ? 1 : 0, facts.now, note],
    ]);
    if (holds) {
      line.held += weight;
      line.frontier = line.last;
    } else line.waiting += 1;
    await this.#write(tx, line);
    return [holds ? 'held' : 'waiting', line.last.toString()];
  }

  /** Whoever loses the race for a new line waits here, and finds it. */
  async #begin(tx: Transaction, key: LineKey, capacity: number): Promise<LineRow> {
    const insert = `INSERT INTO ${this.#p}line VALUES (?, ?, ?, ?, 0, 0, 0, 0, 0) ON DUPLICATE KEY UPDATE touched = touched + 1`;
    await tx.change(insert, [...key, capacity]);
    return (await this.#lock(tx, key))!;
  }

  /** When the line is locked: the time after all waits, what is known of the claim, and the floor for a new line. */
  async #facts(tx: Transaction, session: Buffer, id: Buffer, namespace: Buffer): Promise<Facts> {
    const p = this.#p;
    const [row] = await tx.rows(
      `SELECT CAST(clock.now AS CHAR), EXISTS (SELECT 1 FROM ${p}session WHERE namespace = ? AND expires <= clock.now),
          CAST(COALESCE((SELECT token FROM ${p}floor WHERE namespace = ?), 0) AS CHAR), CAST(c.token AS CHAR), c.held
        FROM (SELECT ${NOW} AS now) AS clock LEFT JOIN ${p}claim c ON c.session = ? AND c.id = ?`,
      [namespace, namespace, session, id],
    );
    const [now, dead, floor, token, held] = row!;
    return {
      now: BigInt(text(now)),
      isSomebodyDead: Number(dead) === 1,
      floor: BigInt(text(floor)),
      token: token === null ? undefined : BigInt(text(token)),
      isHeld: Number(held) === 1,
    };
  }

  /** A part of a session's claims and, with the last of them, the session. True: there may be more. */
  async #bury(tx: Transaction, session: Buffer, force: boolean): Promise<boolean> {
    const p = this.#p;
    const [row] = await tx.rows(`SELECT expires > ${NOW} FROM ${p}session WHERE id = ? FOR UPDATE`, [session]);
    if (!row || (Number(row[0]) === 1 && !force)) return false;
    await tx.change(`UPDATE ${p}session SET expires = 0 WHERE id = ?`, [session]);
    const claims = await tx.rows(
      `SELECT namespace, kind, name, CAST(token AS CHAR) FROM ${p}claim WHERE session = ?
        ORDER BY namespace, kind, name, token LIMIT ${BURY_AT_ONCE}`,
      [session],
    );
    for (const { key, tokens } of byLine(claims)) await this.#remove(tx, key, tokens);
    if (claims.length === BURY_AT_ONCE) return true;
    await tx.change(`DELETE FROM ${p}session WHERE id = ?`, [session]);
    return false;
  }

  async #remove(tx: Transaction, key: LineKey, tokens: readonly bigint[]): Promise<void> {
    const line = await this.#lock(tx, key);
    const these = `${LINE} AND token IN (${tokens.map(() => '?').join(', ')})`;
    // They may have left, or have been granted, until the line was ours.
    const find = `SELECT CAST(weight AS CHAR), held FROM ${this.#p}claim WHERE ${these}`;
    const claims = await tx.rows(find, [...key, ...tokens]);
    await tx.change(`DELETE FROM ${this.#p}claim WHERE ${these}`, [...key, ...tokens]);
    if (!line) return;
    for (const [weight, held] of claims) {
      if (Number(held) === 1) line.held -= Number(weight);
      else line.waiting -= 1;
    }
    await this.#admit(tx, line);
    await this.#write(tx, line);
  }

  /** Grants to those after the frontier while they fit. Claims of nobody go, and who is left is counted. */
  async #admit(tx: Transaction, line: LineRow): Promise<void> {
    const p = this.#p;
    const find = `SELECT CAST(c.token AS CHAR), CAST(c.weight AS CHAR), s.id FROM ${p}claim c LEFT JOIN ${p}session s ON s.id = c.session
      WHERE c.namespace = ? AND c.kind = ? AND c.name = ? AND c.token > ? ORDER BY c.token LIMIT ${ADMIT_AT_ONCE}`;
    const forget = `DELETE FROM ${p}claim WHERE ${LINE} AND token = ?`;
    const grant = `UPDATE ${p}claim SET held = 1, news = ${NOW} WHERE ${LINE} AND token > ? AND token <= ?`;
    for (let isFull = false; !isFull && line.waiting > 0;) {
      const before = line.frontier;
      const claims = await tx.rows(find, [...line.key, before]);
      if (claims.length === 0) line.waiting = 0;
      for (const [token, weight, session] of claims) {
        if (session === null) {
          await tx.change(forget, [...line.key, BigInt(text(token))]);
          continue;
        }
        isFull = line.held + Number(weight) > line.capacity;
        if (isFull) break;
        line.held += Number(weight);
        line.waiting -= 1;
        line.frontier = BigInt(text(token));
      }
      if (line.frontier > before) await tx.change(grant, [...line.key, before, line.frontier]);
    }
  }

  async #lock(tx: Transaction, key: LineKey): Promise<LineRow | undefined> {
    const columns = ['capacity', 'held', 'waiting', 'frontier', 'last'].map((name) => `CAST(${name} AS CHAR)`);
    const [row] = await tx.rows(`SELECT ${columns.join(', ')} FROM ${this.#p}line WHERE ${LINE} FOR UPDATE`, key);
    if (!row) return undefined;
    const [capacity, held, waiting] = row.map(Number) as [number, number, number];
    return { key, capacity, held, waiting, frontier: BigInt(text(row[3])), last: BigInt(text(row[4])) };
  }

  async #write(tx: Transaction, { key, capacity, held, waiting, frontier, last }: LineRow): Promise<void> {
    const sql = `UPDATE ${this.#p}line SET capacity = ?, held = ?, waiting = ?, frontier = ?, last = ?, touched = ${NOW}`;
    await tx.change(`${sql} WHERE ${LINE}`, [capacity, held, waiting, frontier, last, ...key]);
  }

  async #claim(tx: Transaction, session: Buffer, id: Buffer): Promise<ClaimRow | undefined> {
    const sql = `SELECT CAST(token AS CHAR), CAST(weight AS CHAR), held FROM ${this.#p}claim WHERE session = ? AND id = ?`;
    const [row] = await tx.rows(sql, [session, id]);
    return row && { token: BigInt(text(row[0])), weight: Number(row[1]), isHeld: Number(row[2]) === 1 };
  }
}

interface ClaimRow {
  readonly token: bigint;
  readonly weight: number;
  readonly isHeld: boolean;
}

interface Facts {
  /** µs by the server's clock. */
  readonly now: bigint;
  readonly isSomebodyDead: boolean;
  readonly floor: bigint;
  /** Of the claim, if it stands already. */
  readonly token: bigint | undefined;
  readonly isHeld: boolean;
}

/** Claims that are ordered by line, as lines. */
function* byLine(claims: readonly Row[]): Generator<{ readonly key: LineKey; readonly tokens: bigint[] }> {
  let line: { readonly key: LineKey; readonly tokens: bigint[] } | undefined;
  for (const [namespace, kind, name, token] of claims) {
    const key: LineKey = [namespace as Buffer, Number(kind), name as Buffer];
    if (line && !isSame(line.key, key)) yield line;
    if (!line || !isSame(line.key, key)) line = { key, tokens: [] };
    line.tokens.push(BigInt(text(token)));
  }
  if (line) yield line;
}

function isSame([namespace, kind, name]: LineKey, other: LineKey): boolean {
  return kind === other[1] && namespace.equals(other[0]) && name.equals(other[2]);
}
