/**
 * The strategy `for-update`: a transaction, on a connection of its own (store.ts), that keeps a row locked which is found
 * by its primary key. The token is minted and committed elsewhere, then the transaction proves that it still lives.
 *
 *     latch       one row for each name. A writer has it FOR UPDATE; a reader LOCK IN SHARE MODE, FOR SHARE in MySQL
 *     downgrade   a reader that was a writer: a row that is inserted and never committed. To everybody else it is a row
 *                 that is locked; when its transaction ends, by us or by the server, it was never there
 *
 * A writer locks its latch, and after that asks for the row of `downgrade`: it waits for whoever has it, and finds nothing,
 * so nothing of that table is locked by it. A reader needs the latch only. A downgrade inserts the row in a second
 * transaction, which waits for nobody, because only who has the latch alone may ask for it or insert it. Then the first
 * one ends: whoever gets the latch now finds the row. A writer that waits for that row has the latch, so readers that come
 * later wait behind it.
 *
 * One transaction would not do: InnoDB gives back no lock before the end. Nor would two that lock the same row: the second
 * would stand behind those who wait already.
 *
 * What can go wrong: while there is such a reader, a writer that only tries has the latch for a moment. Another reader that
 * tries at that moment is refused, though it could have come in; one that waits does. So is one that tries while the sweeper
 * deletes the latch of a name that nobody has been granted for some seconds.
 *
 * Isolation is READ COMMITTED, or the search for a row that is not there would lock the gap, and other names in it.
 */
import type { Claim } from '../../../core/engine.js';
import { EngineError } from '../../../core/errors.js';
import { ALL } from '../../../core/line.js';
import type { SlotStore } from '../../../kit/slot-store.js';
import { bytes, type Row, type Value } from '../client/port.js';
import { type Latch, mintSql, mintValues, PATIENCE_MS, type PinnedSetup, PinnedStore } from './store.js';
import type { Settings } from '../client/settings.js';
import { IS_WRITABLE, type Pin } from './pins.js';
import type { StoreSetup } from '../rows/engine.js';
import { NOW } from '../tables.js';
import { errnoOf } from '../client/errors.js';

export function forUpdateStore(setup: PinnedSetup): SlotStore {
  return new PinnedStore(setup, new ForUpdate(setup));
}

/** A wait for a row that took too long; a row that others have, asked for with NOWAIT. */
const BUSY = new Set([1205, 3572]);

/** A search for a name's row that locks it. */
interface Find {
  readonly table: string;
  readonly mode: string;
  /** 0: it answers at once. */
  readonly patienceMs: number;
}

class ForUpdate implements Latch {
  readonly settings: Settings;
  readonly #setup: StoreSetup;

  constructor(setup: StoreSetup) {
    this.#setup = setup;
    this.settings = { autocommit: 0, [setup.mariadb ? 'tx_isolation' : 'transaction_isolation']: 'READ-COMMITTED' };
  }

  async lock(pin: Pin, claim: Claim, patienceMs: number): Promise<boolean> {
    const shared = this.#setup.mariadb ? 'LOCK IN SHARE MODE' : 'FOR SHARE';
    const mode = claim.weight === ALL ? 'FOR UPDATE' : shared;
    for (;;) {
      const rows = await this.#find(pin, claim, { table: 'latch', mode, patienceMs });
      if (!rows) return false;
      if (rows.length > 0) {
        pin.mustBeWritable(rows[0]![0]);
        return true;
      }
      // The row is not there, or not any more.
      await this.#insert(pin, this.#key(claim.line.name));
    }
  }

  async mint(pin: Pin, claim: Claim, patienceMs: number): Promise<bigint | undefined> {
    const { database, withinMs, prefix } = this.#setup;
    const { said } = await database.change(mintSql(prefix), mintValues(this.#setup, claim.line.name), { withinMs });
    // Whoever was cut off meanwhile must not go on with a token that is above its successor's: both answers prove it.
    if (claim.weight < ALL) {
      if ((await this.prove(pin)) !== true) throw new EngineError('The lock was lost before it was granted.');
    } else if (!(await this.#find(pin, claim, { table: 'downgrade', mode: 'FOR UPDATE', patienceMs })))
      return undefined;
    return BigInt(said);
  }

  prove(pin: Pin): Promise<boolean | undefined> {
    return pin.proves('1', [], this.#setup.withinMs);
  }

  async unlock(pin: Pin): Promise<void> {
    await pin.ask('ROLLBACK', [], this.#setup.withinMs);
  }

  async stay(pin: Pin, name: string): Promise<void> {
    const { prefix, withinMs } = this.#setup;
    await pin.ask(`INSERT INTO ${prefix}downgrade VALUES (?, ?)`, this.#key(name), PATIENCE_MS + withinMs);
  }

  /** Undefined: others have it, and the transaction is over. */
  async #find(pin: Pin, { line }: Claim, { table, mode, patienceMs }: Find): Promise<readonly Row[] | undefined> {
    const { prefix, withinMs } = this.#setup;
    const sql = `SELECT ${IS_WRITABLE} AS writable FROM ${prefix}${table} WHERE namespace = ? AND name = ? ${mode}`;
    try {
      return await pin.ask(patienceMs === 0 ? `${sql} NOWAIT` : sql, this.#key(line.name), patienceMs + withinMs);
    } catch (error) {
      if (!BUSY.has(errnoOf(error))) throw error;
      await pin.ask('ROLLBACK', [], withinMs);
      return undefined;
    }
  }

  /**
   * Another may insert it at the same time and lock it at once; then an insert waits for that lock. MariaDB can do
   * without waiting, MySQL waits for a second.
   */
  async #insert(pin: Pin, key: readonly Value[]): Promise<void> {
    const { withinMs, mariadb, prefix } = this.#setup;
    await pin.ask('ROLLBACK', [], withinMs);
    const insert = `INSERT IGNORE INTO ${prefix}latch VALUES (?, ?, '', 0, ${NOW})`;
    const sql = mariadb ? `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ${insert}` : insert;
    try {
      await pin.ask(sql, key, withinMs + PATIENCE_MS);
    } catch (error) {
      if (!BUSY.has(errnoOf(error))) throw error;
    }
    await pin.ask('COMMIT', [], withinMs);
  }

  #key(name: string): readonly Value[] {
    return [this.#setup.namespace, bytes(name)];
  }
}
