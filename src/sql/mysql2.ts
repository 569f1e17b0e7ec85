/** mysql2: a connection or a pool, of 'mysql2' or of 'mysql2/promise', which have one of the former inside. */
import type { Row, SqlPort } from './port.js';
import type { Statement } from './statement.js';

interface Mysql2 {
  query(options: object, done: (error: unknown, result: unknown) => void): unknown;
}

/** What is answered to a statement without rows. */
interface Header {
  readonly affectedRows: number;
  readonly serverStatus?: number;
}

/** A bit of the server's status: there is a transaction. */
const IN_TRANSACTION = 1;

export function isMysql2(db: object): boolean {
  return rawOf(db) !== undefined;
}

/** With callbacks, because it is the same for all of them. */
function rawOf(db: object): (Mysql2 & object) | undefined {
  const { connection, pool } = db as { connection?: unknown; pool?: unknown };
  return [db, connection, pool].find(
    (candidate): candidate is Mysql2 & object =>
      typeof candidate === 'object' &&
      candidate !== null &&
      ['query', 'execute', 'promise'].every(
        (name) => typeof (candidate as Record<string, unknown>)[name] === 'function',
      ),
  );
}

export class Mysql2Port implements SqlPort {
  readonly dialect = 'mysql';
  readonly isPool: boolean;
  inTransaction: boolean | undefined;
  readonly #raw: Mysql2;

  constructor(db: object) {
    this.#raw = rawOf(db)!;
    this.isPool = 'getConnection' in db;
  }

  async rows(statement: Statement): Promise<readonly Row[]> {
    const result = await this.#send(statement);
    return Array.isArray(result) ? (result as Row[]) : [];
  }

  async change(statement: Statement): Promise<number> {
    return ((await this.#send(statement)) as Header).affectedRows;
  }

  #send({ sql, params }: Statement): Promise<unknown> {
    return new Promise((resolve, reject) => {
      // The options that a connection may have set otherwise.
      this.#raw.query({ sql, values: params, rowsAsArray: false, nestTables: false }, (error, result) => {
        if (error) return reject(error);
        const { serverStatus } = result as Partial<Header>;
        if (serverStatus !== undefined) this.inTransaction = (serverStatus & IN_TRANSACTION) !== 0;
        return resolve(result);
      });
    });
  }
}
