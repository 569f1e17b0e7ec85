/** The fence of sql.ts on a database that is used synchronously, in this process. */
import type { Fence } from '../core/engine.js';
import type { Row } from '../sql/port.js';
import { type SqliteDatabase, SqlitePort } from '../sql/sqlite.js';
import { checkTransaction, isMissingTable, stale, tokensOf } from './answers.js';
import { type OpenOptions, Presenter, type Resources, type Shown } from './presented.js';
import type { SqlFenceOptions } from './sql.js';
import { FenceTable } from './table.js';
import { inTransaction } from './transaction.js';

export class SqliteFence<D extends SqliteDatabase = SqliteDatabase> {
  readonly #db: D;
  readonly #port: SqlitePort;
  readonly #table: FenceTable;
  readonly #mayMigrate: boolean;
  readonly #presenter = new Presenter();

  constructor(db: D, options: SqlFenceOptions) {
    this.#db = db;
    this.#port = new SqlitePort(db);
    this.#table = new FenceTable('sqlite', options);
    this.#mayMigrate = options.migrate ?? true;
  }

  /** Shows the token, before anything of the resource is read or written in this transaction. Throws a StaleTokenError. */
  async open(resource: Resources, shown: Shown | readonly Shown[], options?: OpenOptions): Promise<void> {
    this.openSync(resource, shown, options);
  }

  /** The same at once: for transactions that must not wait, like those of better-sqlite3. */
  openSync(resource: Resources, shown: Shown | readonly Shown[], options?: OpenOptions): void {
    const opens = this.#presenter.presentAll(resource, shown, options);
    checkTransaction(this.#port.inTransaction);
    for (const [name, fence] of opens) this.#open(name, fence);
  }

  /**
   * `BEGIN IMMEDIATE`, `open`, your function, `COMMIT`; or `ROLLBACK`. Gives what the function gives. While it waits for something else,
   * whatever uses this database object is inside of the transaction, too; calls of this method take turns.
   */
  async transaction<T>(
    resource: Resources,
    shown: Shown | readonly Shown[],
    work: (tx: D) => T | PromiseLike<T>,
    options?: OpenOptions,
  ): Promise<T> {
    return inTransaction(this.#db, this.#port, {
      prepare: () => {},
      open: () => this.openSync(resource, shown, options),
      work: () => work(this.#db),
    });
  }

  #open(resource: string, fence: Fence): void {
    if (this.#present(resource, fence).length > 0) return;
    throw stale(resource, fence, tokensOf(this.#port.rowsNow(this.#table.tokens(resource))[0]));
  }

  #present(resource: string, fence: Fence): readonly Row[] {
    const present = (): readonly Row[] => this.#port.rowsNow(this.#table.present(resource, fence));
    try {
      return present();
    } catch (error) {
      if (!isMissingTable(error)) throw error;
      if (!this.#mayMigrate) throw this.#table.missing(error);
    }
    this.#port.execNow(this.#table.make(0));
    return present();
  }
}
