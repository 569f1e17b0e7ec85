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
 * whether the token was stale is told by a locking read, never by a snapshot. PostgreSQL refuses with 40001 whoever opens
 * a fence that has changed since its snapshot; that error is the user's, who tries the whole transaction again.
 *
 * The table: a failed statement ends a transaction of PostgreSQL, so there it is looked for first, and made where it is
 * missing, under the lock that migrations take. On SQLite it is made when a statement has missed it. On MySQL it is never
 * made on the way, because DDL would commit the user's transaction.
 */
import type { Fence } from '../core/engine.js';
import { ConfigError } from '../core/errors.js';
import { isStale } from '../core/fence.js';
import type { Lease } from '../index.js';
import { portOf, type Row, type SqlPort } from '../sql/port.js';
import { SqlitePort } from '../sql/sqlite.js';
import { statement } from '../sql/statement.js';
import { checkTransaction, isMissingTable, stale, tokensOf } from './answers.js';
import { checkResource, type OpenOptions, Presenter } from './presented.js';
import { FenceTable, type TableOptions } from './table.js';

export interface SqlFenceOptions extends TableOptions {
  /**
   * Whether a missing table is made on the way (PostgreSQL, SQLite). False spares PostgreSQL one question for each
   * connection. Default: true.
   */
  readonly migrate?: boolean | undefined;
}

/**
 * Which tables a connection of PostgreSQL has found there. One that it has made itself may be rolled back with the
 * transaction that made it, so that connection goes on asking.
 */
const tables = new WeakMap<object, Map<string, 'found' | 'made'>>();

export class SqlFence {
  readonly #db: object;
  readonly #port: SqlPort;
  readonly #table: FenceTable;
  readonly #mayMigrate: boolean;
  readonly #presenter = new Presenter();

  constructor(db: object, options: SqlFenceOptions) {
    this.#db = db;
    this.#port = portOf(db);
    this.#table = new FenceTable(this.#port.dialect, options);
    this.#mayMigrate = options.migrate ?? true;
    if (this.#port.isPool)
      throw new ConfigError(
        'A fence is opened inside of your own transaction, on its connection; a pool may send each statement over another ' +
          'one. Take a connection of it, begin a transaction there, and pass that connection.',
      );
  }

  /**
   * Shows the token, before anything of the resource is read or written in this transaction. Throws a StaleTokenError if
   * the lease was overtaken: roll back. The token counts once the transaction is committed.
   *
   *     await fence(client).open('account:1', lease);
   */
  async open(resource: string, shown: Lease | bigint, options?: OpenOptions): Promise<void> {
    checkResource(resource);
    const fence = this.#presenter.present(shown, options);
    await (this.#port.dialect === 'mysql' ? this.#openInMysql(resource, fence) : this.#open(resource, fence));
  }

  async #open(resource: string, fence: Fence): Promise<void> {
    if (this.#port.dialect === 'postgres' && this.#mayMigrate) await this.#migratePostgres();
    const [opened] = await this.#present(resource, fence);
    checkTransaction(this.#port.inTransaction ?? (opened && (await this.#isInTransaction())));
    if (opened) return;
    const [row] = await this.#port.rows(this.#table.look(resource));
    throw stale(resource, fence, tokensOf(row));
  }

  async #openInMysql(resource: string, fence: Fence): Promise<void> {
    await this.#present(resource, fence);
    checkTransaction(this.#port.inTransaction);
    const [row] = await this.#port.rows(this.#table.look(resource));
    const { read, wrote } = tokensOf(row);
    if (isStale(fence, read, wrote)) throw stale(resource, fence, { read, wrote });
  }

  /** For what does not tell. What has written has a number, and in a transaction the next statement still has it. */
  async #isInTransaction(): Promise<boolean | undefined> {
    if (this.#port.dialect !== 'postgres') return undefined;
    const ask = statement('postgres', 'SELECT CAST(txid_current_if_assigned() AS text) AS number', []);
    const [row] = await this.#port.rows(ask);
    return Object.values(row!)[0] !== null;
  }

  async #migratePostgres(): Promise<void> {
    const known = tables.get(this.#db) ?? new Map<string, 'found' | 'made'>();
    tables.set(this.#db, known);
    const { name } = this.#table;
    if (known.get(name) === 'found') return;
    const look = statement('postgres', 'SELECT CAST(to_regclass(CAST(? AS text)) AS text) AS found', [name]);
    const [found] = await this.#port.rows(look);
    if (Object.values(found!)[0] !== null) {
      if (!known.has(name)) known.set(name, 'found');
      return;
    }
    await make(this.#port, this.#table);
    known.set(name, 'made');
  }

  async #present(resource: string, fence: Fence): Promise<readonly Row[]> {
    const present = (): Promise<readonly Row[]> => this.#port.rows(this.#table.present(resource, fence));
    try {
      return await present();
    } catch (error) {
      if (!isMissingTable(error)) throw error;
      tables.delete(this.#db);
      if (this.#port.dialect !== 'sqlite' || !this.#mayMigrate) throw this.#table.missing(error);
    }
    await make(this.#port, this.#table);
    return present();
  }
}

/**
 * Makes the table of fences where it is missing: what `holdfast schema apply` does for all tables. On MySQL it commits the
 * transaction that it runs in; a pool will do. May be called by many at once.
 *
 *     await migrate(pool);
 */
export async function migrate(db: object, options: TableOptions = {}): Promise<void> {
  const port = portOf(db);
  await make(port, new FenceTable(port.dialect, options));
}

async function make(port: SqlPort, table: FenceTable): Promise<void> {
  if (port instanceof SqlitePort) port.exec(table.make);
  else await port.rows(statement(port.dialect, table.make, []));
}
