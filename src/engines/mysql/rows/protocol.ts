/**
 * The strategies `row` and `version`: a lock is one row of a table, found by its primary key. It is free when it has no
 * owner, or when `until` has passed by the server's clock; whoever holds it moves that on.
 *
 *     row       take is one statement: insert the row, or take it over if it is free. Token: max(last + 1, µs)
 *     version   take is optimistic: read the row, then change it if its version is still the one that was read
 *
 * A lock that is freed keeps its row, and with it its last token, until the sweeper deletes what nobody has used for a
 * while; the floor remembers the highest token of what was deleted.
 */
import type { Claim, ClaimRef } from '../../../core/engine.js';
import type { HeldSlot, Pace, SlotStore, Taken } from '../../../kit/slot-store.js';
import { bytes, text, type Value } from '../client/port.js';
import type { StoreSetup } from './engine.js';
import { firstToken, NOW } from '../tables.js';

/** So many locks are renewed by one statement. */
const CHUNK = 500;

/** How a strategy takes a row. */
type Take = (rows: Rows, claim: Claim) => Promise<Taken>;

/** What both have in common. */
class Rows implements SlotStore {
  readonly pace: Pace = { firstMs: 5, mostMs: 100 };
  /** Each statement goes over whatever connection of the pool is free. */
  readonly unordered = true;
  readonly setup: StoreSetup;
  readonly table: string;
  readonly ttlUs: number;
  readonly #take: Take;

  constructor(setup: StoreSetup, table: string, take: Take) {
    this.setup = setup;
    this.table = setup.prefix + table;
    this.ttlUs = Math.round(setup.ttlMs * 1_000);
    this.#take = take;
  }

  take(claim: Claim): Promise<Taken> {
    this.setup.sweeper.used();
    return this.#take(this, claim);
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const lost: string[] = [];
    for (let at = 0; at < slots.length; at += CHUNK) lost.push(...(await this.#keepSome(slots.slice(at, at + CHUNK))));
    return lost;
  }

  async drop({ id, line }: ClaimRef): Promise<boolean> {
    const { found } = await this.change(
      `UPDATE ${this.table} SET owner = '', until = ${NOW} WHERE namespace = ? AND name = ? AND owner = ?`,
      [...this.key(line.name), bytes(id)],
    );
    return found > 0;
  }

  async close(): Promise<void> {}

  /** Claim ids are unique, so two lists are as good as a list of pairs, which no index would be used for. */
  async #keepSome(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const places = slots.map(() => '?').join(', ');
    const ours = `namespace = ? AND name IN (${places}) AND owner IN (${places})`;
    const values = [
      this.setup.namespace,
      ...slots.map(({ line }) => bytes(line.name)),
      ...slots.map(({ id }) => bytes(id)),
    ];
    const options = { withinMs: this.setup.withinMs, urgent: true };
    const renew = `UPDATE ${this.table} SET until = ${NOW} + ? WHERE ${ours} AND until > ${NOW}`;
    await this.setup.database.change(renew, [this.ttlUs, ...values], options);
    const find = `SELECT owner FROM ${this.table} WHERE ${ours} AND until > ${NOW}`;
    const kept = new Set((await this.setup.database.rows(find, values, options)).map(([owner]) => text(owner)));
    return slots.flatMap(({ id }) => (kept.has(id) ? [] : [id]));
  }

  key(name: string): readonly Value[] {
    return [this.setup.namespace, bytes(name)];
  }

  change(sql: string, values: readonly Value[]): Promise<{ readonly found: number; readonly said: number }> {
    return this.setup.database.change(sql, values, { withinMs: this.setup.withinMs });
  }
}

export function rowStore(setup: StoreSetup): SlotStore {
  return new Rows(setup, 'row', takeRow);
}

export function versionStore(setup: StoreSetup): SlotStore {
  return new Rows(setup, 'version', takeVersion);
}

/**
 * One statement. What it did it says with LAST_INSERT_ID, the only answer that does not depend on flags of the
 * connection: the token, or 0 if the row is another's.
 *
 * Assignments see those before them, or all see the old row (MariaDB's SIMULTANEOUS_ASSIGNMENT). So `until` comes last, and asks
 * both whether the row was free and whether it is ours: it means the same either way.
 */
async function takeRow(rows: Rows, { id, line: { name } }: Claim): Promise<Taken> {
  const { setup, table, ttlUs } = rows;
  const owner = bytes(id);
  const isFree = `(owner = '' OR until <= ${NOW})`;
  const { said } = await rows.change(
    `INSERT INTO ${table} (namespace, name, owner, token, until)
      VALUES (?, ?, ?, LAST_INSERT_ID(${firstToken(setup.prefix)}), ${NOW} + ?)
      ON DUPLICATE KEY UPDATE
        token = IF(${isFree}, LAST_INSERT_ID(GREATEST(token + 1, ${NOW})), IF(owner = ?, LAST_INSERT_ID(token), token + LAST_INSERT_ID(0))),
        owner = IF(${isFree}, ?, owner),
        until = IF(${isFree} OR owner = ?, ${NOW} + ?, until)`,
    [...rows.key(name), owner, setup.namespace, ttlUs, owner, owner, owner, ttlUs],
  );
  return said > 0 ? { token: BigInt(said) } : { freeInMs: undefined };
}

async function takeVersion(rows: Rows, claim: Claim): Promise<Taken> {
  let taken = await tryVersion(rows, claim);
  // Who was quicker may have been this very claim, asked twice at once: the row tells.
  if (taken === 'overtaken') taken = await tryVersion(rows, claim);
  return taken === 'overtaken' ? { freeInMs: undefined } : taken;
}

async function tryVersion(rows: Rows, { id, line }: Claim): Promise<Taken | 'overtaken'> {
  const { setup, table, ttlUs } = rows;
  const owner = bytes(id);
  const key = rows.key(line.name);
  const find = `SELECT CAST(token AS CHAR), owner, CAST(IF(owner = '', 0, until - ${NOW}) DIV 1000 AS CHAR) FROM ${table} WHERE namespace = ? AND name = ?`;
  const [row] = await setup.database.rows(find, key, { withinMs: setup.withinMs });
  if (!row) return insertVersion(rows, key, owner);
  const version = BigInt(text(row[0]));
  const freeInMs = Number(row[2]);
  if (text(row[1]) === id && freeInMs > 0) {
    const lost = await rows.keep([{ id, line, token: version }]);
    return lost.length === 0 ? { token: version } : { freeInMs: undefined };
  }
  if (freeInMs > 0) return { freeInMs };
  const { found } = await rows.change(
    `UPDATE ${table} SET token = token + 1, owner = ?, until = ${NOW} + ?
      WHERE namespace = ? AND name = ? AND token = ? AND (owner = '' OR until <= ${NOW})`,
    [owner, ttlUs, ...key, version],
  );
  return found > 0 ? { token: version + 1n } : 'overtaken';
}

/** A name's first version. Who comes second changes nothing. */
async function insertVersion(rows: Rows, key: readonly Value[], owner: Buffer): Promise<Taken | 'overtaken'> {
  const { setup, table, ttlUs } = rows;
  const { said } = await rows.change(
    `INSERT INTO ${table} (namespace, name, owner, token, until)
      VALUES (?, ?, ?, LAST_INSERT_ID(${firstToken(setup.prefix)}), ${NOW} + ?)
      ON DUPLICATE KEY UPDATE token = token + LAST_INSERT_ID(0)`,
    [...key, owner, setup.namespace, ttlUs],
  );
  return said > 0 ? { token: BigInt(said) } : 'overtaken';
}
