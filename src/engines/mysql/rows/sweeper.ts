/**
 * Deletes rows that nobody has used for a while, so that a name used once leaves nothing behind. Runs some seconds after
 * the last use, in the background, and goes through a table in chunks, by primary key. Registers go whose time is over.
 *
 * Tokens must not fall with the rows: first the floor is raised to the highest token of a chunk, then only rows that are
 * not above it are deleted. Whoever inserts a name anew reads the floor after that.
 *
 * Only what is deleted is ever locked: a row is looked for without a lock, and then locked by its key. A try of `for-update`
 * that finds its row locked is refused, and would be so by a search that only passes by. Nor is the latch of a name deleted
 * that was granted a short while ago.
 */
import type { Clock, Timer } from '../../../core/clock.js';
import type { Database } from '../client/database.js';
import { bytes, type Row, text, type Value } from '../client/port.js';
import type { MysqlRegisters } from '../registers.js';
import { NOW } from '../tables.js';

const CHUNK = 1_000;
/** Not at once: a lock that is used again and again would be made again and again. */
const IDLE_US = 5_000_000;
const PAUSE_MS = 6_000;

export interface RowSweeperSetup {
  readonly database: Database;
  readonly clock: Clock;
  readonly namespace: Buffer;
  readonly prefix: string;
  readonly tables: readonly string[];
  readonly registers: MysqlRegisters;
}

export class RowSweeper {
  readonly #setup: RowSweeperSetup;
  #timer: Timer | undefined;
  #uses = 0;
  #closed = false;

  constructor(setup: RowSweeperSetup) {
    this.#setup = setup;
  }

  used(): void {
    this.#uses += 1;
    this.#schedule();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.close();
  }

  #schedule(): void {
    if (this.#timer || this.#closed) return;
    const { clock } = this.#setup;
    const uses = this.#uses;
    this.#timer = clock.timer(PAUSE_MS * (1 + clock.random()), () => {
      void this.#sweep().finally(() => {
        this.#timer = undefined;
        if (uses !== this.#uses) this.#schedule();
      });
    });
    this.#timer.unref();
  }

  async #sweep(): Promise<void> {
    try {
      for (const table of this.#setup.tables) await this.#clean(this.#setup.prefix + table);
      await this.#setup.registers.forget();
    } catch {
      // The next one goes on.
    }
  }

  async #clean(table: string): Promise<void> {
    const { database, namespace, prefix } = this.#setup;
    for (let after = bytes(''), end = false; !end;) {
      const [row] = await database.rows(
        `SELECT MAX(name), COUNT(*), CAST(MAX(token) AS CHAR), SUM(until < ${NOW} - ${IDLE_US}) FROM (
          SELECT name, token, until FROM ${table} WHERE namespace = ? AND name > ? ORDER BY name LIMIT ${CHUNK}) AS chunk`,
        [namespace, after],
      );
      const [until, count, token, idle] = row!;
      end = Number(count) < CHUNK;
      if (Number(idle) > 0) {
        const highest = BigInt(text(token));
        await database.change(
          `INSERT INTO ${prefix}floor VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)`,
          [namespace, highest, highest],
        );
        await this.#delete(table, { after, until: until as Buffer, highest });
      }
      if (!end) after = until as Buffer;
    }
  }

  async #delete(table: string, { after, until, highest }: Chunk): Promise<void> {
    const { database, namespace, prefix } = this.#setup;
    const isIdle = `until < ${NOW} - ${IDLE_US} AND token <= ?`;
    const idle = await database.rows(
      `SELECT name FROM ${table} AS old WHERE namespace = ? AND name > ? AND name <= ? AND ${isIdle} AND NOT EXISTS (
        SELECT 1 FROM ${prefix}mint AS used WHERE used.namespace = old.namespace AND used.name = old.name
          AND used.until >= ${NOW} - ${IDLE_US})`,
      [namespace, after, until, highest],
    );
    if (idle.length === 0) return;
    const keys = (rows: readonly Row[]): Value[] => [namespace, ...rows.map(([name]) => name as Buffer)];
    // What is locked is in use.
    await database.transaction(
      `SELECT name FROM ${table} WHERE ${named(idle)} AND ${isIdle} FOR UPDATE SKIP LOCKED`,
      [...keys(idle), highest],
      (found) => ({ sql: `DELETE FROM ${table} WHERE ${named(found)}`, values: keys(found) }),
    );
  }
}

/** Names after the one and up to the other. */
interface Chunk {
  readonly after: Buffer;
  readonly until: Buffer;
  /** The highest token that is remembered. */
  readonly highest: bigint;
}

/** Bound: the namespace, and the names. */
function named(rows: readonly Row[]): string {
  return `namespace = ? AND name IN (${rows.map(() => '?').join(', ')})`;
}
