/** The fence of sql.ts on a database that is used synchronously, in this process. */
import type { Fence } from '../core/engine.js';
import type { Lease } from '../index.js';
import type { Row } from '../sql/port.js';
import { type SqliteDatabase, SqlitePort } from '../sql/sqlite.js';
import { checkTransaction, isMissingTable, stale, tokensOf } from './answers.js';
import { checkResource, type OpenOptions, Presenter } from './presented.js';
import type { SqlFenceOptions } from './sql.js';
import { FenceTable } from './table.js';

export class SqliteFence {
  readonly #port: SqlitePort;
  readonly #table: FenceTable;
  readonly #mayMigrate: boolean;
  readonly #presenter = new Presenter();

  constructor(db: SqliteDatabase, options: SqlFenceOptions) {
    this.#port = new SqlitePort(db);
    this.#table = new FenceTable('sqlite', options);
    this.#mayMigrate = options.migrate ?? true;
  }

  /** Shows the token, before anything of the resource is read or written in this transaction. Throws a StaleTokenError. */
  async open(resource: string, shown: Lease | bigint, options?: OpenOptions): Promise<void> {
    this.openSync(resource, shown, options);
  }

  /** The same at once: for transactions that must not wait, like those of better-sqlite3. */
  openSync(resource: string, shown: Lease | bigint, options?: OpenOptions): void {
    checkResource(resource);
    const fence = this.#presenter.present(shown, options);
    checkTransaction(this.#port.inTransaction);
    if (this.#present(resource, fence).length > 0) return;
    throw stale(resource, fence, tokensOf(this.#port.rowsNow(this.#table.look(resource))[0]));
  }

  #present(resource: string, fence: Fence): readonly Row[] {
    const present = (): readonly Row[] => this.#port.rowsNow(this.#table.present(resource, fence));
    try {
      return present();
    } catch (error) {
      if (!isMissingTable(error)) throw error;
      if (!this.#mayMigrate) throw this.#table.missing(error);
    }
    this.#port.exec(this.#table.make);
    return present();
  }
}
