/**
 * A fence in the user's own transaction, on PostgreSQL, MySQL, MariaDB and SQLite: the resource's half of fencing.
 *
 *     BEGIN
 *     open('account:1', lease)     one conditional upsert of the fence's row: raises what was shown, or changes nothing
 *     SELECT …, UPDATE …           whatever the user does to the resource
 *     COMMIT
 *
 * The upsert locks the row until the transaction ends, stale or not. So of two transactions that open one fence the second
 * waits for the first, and then sees both its token and its writes. A stalled holder that wakes up before a newer
 * one has opened the fence is no danger: the newer one will read what it wrote. After that, its own open is refused.
 *
 * Hence the order: open first, then read. What was read before may be older than the fence. On MySQL a transaction's
 * snapshot begins with its first plain SELECT, so there the reads after the upsert are new even under REPEATABLE READ; and
 * whether the token was stale is read from the row that the upsert has written, which no snapshot hides. PostgreSQL refuses with 40001 whoever opens
 * a fence that has changed since its snapshot; that error is the user's, who tries the whole transaction again.
 *
 * Several primaries (Galera, group replication): row locks are those of one server, but transactions are certified against each other
 * when they commit, by the rows that they have written. So every open must be a write. PostgreSQL and SQLite write whatever an
 * UPDATE names; MySQL does not write what is the same as before, and counts in a column for that.
 *
 * The table: a failed statement ends a transaction of PostgreSQL, so there it is looked for first. Where it is missing it is made over a
 * connection beside, under the lock that migrations take, and committed at once: whoever makes it in a transaction keeps out
 * all others until that ends. An adapter of the user's has no more than the transaction. On SQLite it is made when a statement
 * has missed it. On MySQL it is never made on the way, because DDL would commit the user's transaction.
 */
import type { Fence } from '../core/engine.js';
import { show } from '../core/duration.js';
import { ConfigError } from '../core/errors.js';
import { isStale } from '../core/fence.js';
import { portOf, type Row, type SqlPort } from '../sql/port.js';
import { type Statement, statement } from '../sql/statement.js';
import {
  checkTransaction,
  explained,
  isMissingTable,
  isThereAlready,
  stale,
  tokensOf,
  unmade,
  withReason,
} from './answers.js';
import { type OpenOptions, Presenter, type Resources, type Shown } from './presented.js';
import { FenceTable, type TableOptions } from './table.js';
import { inTransaction, type TransactionOn } from './transaction.js';

export interface SqlFenceOptions extends TableOptions {
  /**
   * Whether a missing table is made on the way: by `open` on PostgreSQL and SQLite, by `transaction` everywhere. False spares one
   * question for each connection. Default: true.
   */
  readonly migrate?: boolean | undefined;
}

/** For another that migrates; beside a transaction that may itself be in the way of it. */
const PATIENCE_MS = { first: 10_000, beside: 2_000 };

/** Which tables a connection has found there, for good. */
const tables = new WeakMap<object, Set<string>>();

export class SqlFence<D extends object = object> {
  readonly #db: D;
  readonly #port: SqlPort;
  readonly #table: FenceTable;
  readonly #options: SqlFenceOptions;
  readonly #presenter: Presenter;

  constructor(db: D, options: SqlFenceOptions, presenter = new Presenter()) {
    this.#db = db;
    this.#port = portOf(db);
    this.#table = new FenceTable(this.#port.dialect, options);
    this.#options = options;
    this.#presenter = presenter;
  }

  /**
   * Shows the token, before anything of the resource is read or written in this transaction. Throws a StaleTokenError if
   * the lease was overtaken: roll back. The token counts once the transaction is committed. Several resources are opened in one
   * order, with one lease for all of them or with one for each.
   *
   *     await fence(client).open('account:1', lease);
   *     await fence(client).open(['account:1', 'account:2'], [leases.of(one), leases.of(two)]);
   */
  async open(resource: Resources, shown: Shown | readonly Shown[], options?: OpenOptions): Promise<void> {
    const opens = this.#presenter.presentAll(resource, shown, options);
    if (this.#port.isPool)
      throw new ConfigError(
        'A fence is opened inside of your own transaction, on its connection; a pool may send each statement over another ' +
          'one. Take a connection of it, begin a transaction there, and pass that connection; or use fence(pool).transaction.',
      );
    checkTransaction((await this.#port.isInTransaction()) ?? (await this.#isInTransaction()));
    if (this.#port.dialect === 'postgres') await this.#ensureTable(() => this.#makeBeside());
    for (const [name, fence] of opens) await this.#open(name, fence);
  }

  /**
   * Begins a transaction, opens the fence, calls the function with the connection, and commits; or rolls back, if anything throws.
   * Gives what the function gives. On a pool it takes a connection and gives it back.
   *
   *     await fence(pool).transaction('account:1', lease, async (tx) => {
   *       await tx.query('UPDATE account SET balance = balance - 5 WHERE id = 1');
   *     });
   */
  async transaction<T>(
    resource: Resources,
    shown: Shown | readonly Shown[],
    work: (tx: TransactionOn<D>) => T | PromiseLike<T>,
    options?: OpenOptions,
  ): Promise<T> {
    if (typeof work !== 'function') throw new ConfigError(`transaction needs a function to run; got ${show(work)}.`);
    if (!this.#port.borrow || !this.#port.isPool) return this.#transact(resource, shown, work, options);
    // What is wrong with these needs no connection to be said.
    this.#presenter.presentAll(resource, shown, options);
    const borrowed = await this.#port.borrow();
    const port = portOf(borrowed.db);
    let isBroken = false;
    try {
      return await new SqlFence(borrowed.db, this.#options, this.#presenter).#transact(resource, shown, work, options);
    } catch (error) {
      isBroken = (await port.isInTransaction().catch(() => true)) !== false;
      throw error;
    } finally {
      await borrowed.giveBack(isBroken);
    }
  }

  async #transact<T>(
    resource: Resources,
    shown: Shown | readonly Shown[],
    work: (tx: never) => T | PromiseLike<T>,
    options: OpenOptions | undefined,
  ): Promise<T> {
    return inTransaction(this.#db, this.#port, {
      prepare: () => this.#ensureTable(() => this.#makeBefore()),
      open: () => this.open(resource, shown, options),
      work: () => work(this.#db as never),
    }).catch((error: unknown) => {
      throw withReason(error);
    });
  }

  async #open(resource: string, fence: Fence): Promise<void> {
    try {
      const [opened] = await this.#port.rows(this.#table.present(resource, fence));
      if (opened) return;
      const [row] = await this.#port.rows(this.#table.tokens(resource));
      const { read, wrote } = tokensOf(row);
      if (this.#port.dialect !== 'mysql' || isStale(fence, read, wrote)) throw stale(resource, fence, { read, wrote });
    } catch (error) {
      if (isMissingTable(error)) tables.delete(this.#db);
      throw explained(error, this.#table);
    }
  }

  /** For what does not tell. What has a number still has it in the next statement, if both are in one transaction. */
  async #isInTransaction(): Promise<boolean | undefined> {
    if (this.#port.dialect !== 'postgres') return undefined;
    const [given] = await this.#ask('SELECT CAST(txid_current() AS text) AS number');
    const [still] = await this.#ask('SELECT CAST(txid_current_if_assigned() AS text) AS number');
    return Object.values(given!)[0] === Object.values(still!)[0];
  }

  #ask(text: string): Promise<readonly Row[]> {
    return this.#port.rows(statement(this.#port.dialect, text, []));
  }

  async #ensureTable(makeIt: () => Promise<'for good' | 'for now'>): Promise<void> {
    const { name, look } = this.#table;
    const found = tables.get(this.#db) ?? new Set();
    if (this.#options.migrate === false || !look || found.has(name)) return;
    if (!(await this.#isThere(look)) && (await makeIt()) === 'for now') return;
    tables.set(this.#db, found.add(name));
  }

  async #isThere(look: Statement): Promise<boolean> {
    try {
      return (await this.#port.rows(look)).length > 0;
    } catch (error) {
      throw explained(error, this.#table);
    }
  }

  async #makeBefore(): Promise<'for good'> {
    await make(this.#port, this.#table);
    return 'for good';
  }

  /** Else in the transaction itself, with which it may be rolled back. */
  async #makeBeside(): Promise<'for good' | 'for now'> {
    const beside = await this.#port.beside?.().catch(() => undefined);
    try {
      if (beside) {
        await make(portOf(beside.db), this.#table, PATIENCE_MS.beside);
        return 'for good';
      }
    } catch {
      // This very transaction may stand in the way of the other: it may have made the schema.
    } finally {
      await beside?.giveBack(false);
    }
    await make(this.#port, this.#table);
    return 'for now';
  }
}

/**
 * Makes the table of fences where it is missing, and completes one of an earlier version: what `holdfast schema apply` does for all tables.
 * On MySQL it commits the transaction that it runs in; a pool will do. May be called by many at once.
 *
 *     await migrate(pool);
 */
export async function migrate(db: object, options: TableOptions = {}): Promise<void> {
  const port = portOf(db);
  await make(port, new FenceTable(port.dialect, options));
}

async function make(port: SqlPort, table: FenceTable, patienceMs = PATIENCE_MS.first): Promise<void> {
  try {
    await port.exec(table.make(patienceMs));
    if (table.complete && (await port.rows(table.look!)).length === 0) await port.exec(table.complete);
  } catch (error) {
    if (!isThereAlready(error)) throw unmade(error, table);
  }
}
