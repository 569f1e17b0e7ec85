/** mysql2: a connection or a pool, of 'mysql2' or of 'mysql2/promise', which have one of the former inside. */
import type { Borrowed, Row, SqlPort } from './port.js';
import type { Statement } from './statement.js';
import { unanswered } from './unanswered.js';

interface Mysql2 {
  query(options: object, done: (error: unknown, result: unknown) => void): unknown;
  execute(options: object, done: (error: unknown, result: unknown) => void): unknown;
}

/** What is answered to a statement without rows. */
interface Header {
  readonly affectedRows: number;
  readonly serverStatus?: number;
}

interface Connection {
  release(): void;
  destroy(): void;
}

/** Bits of the server's status: there is a transaction; there will be one for each statement. */
const IN_TRANSACTION = 1;
const AUTOCOMMIT = 2;

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

/** Else there is no connection any more. */
function isVerdict(error: unknown): boolean {
  const { sqlState, fatal } = error as { sqlState?: unknown; fatal?: unknown };
  return typeof sqlState === 'string' && fatal !== true;
}

/**
 * A function of the connection's is only put aside by another one. It was written for `query`: asked for the text of a number in what
 * `execute` has answered, mysql2 reads beside it, and garbles the rest of the row.
 */
function asItIs(_field: unknown, next: () => unknown): unknown {
  return next();
}

export class Mysql2Port implements SqlPort {
  readonly dialect = 'mysql';
  readonly isPool: boolean;
  readonly #db: object;
  readonly #raw: Mysql2;

  constructor(db: object) {
    this.#db = db;
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

  /** Only what is answered to a statement without rows has the server's status. */
  async isInTransaction(): Promise<boolean | undefined> {
    const { serverStatus } = (await this.exec('DO 0')) as Header;
    if (serverStatus === undefined) return undefined;
    return (serverStatus & IN_TRANSACTION) !== 0 || (serverStatus & AUTOCOMMIT) === 0;
  }

  exec(sql: string): Promise<unknown> {
    return this.#send({ sql, params: [] });
  }

  commit(): Promise<unknown> {
    return this.exec('COMMIT').catch((error: unknown) => {
      throw isVerdict(error) ? error : unanswered(error);
    });
  }

  /** With promises if the pool has them. */
  async borrow(): Promise<Borrowed> {
    const connection = await new Promise<object & Connection>((resolve, reject) => {
      const done = (error: unknown, got: object & Connection): void => (error ? reject(error) : resolve(got));
      const pool = this.#db as { getConnection(then: typeof done): Promise<object & Connection> | void };
      pool.getConnection(done)?.then(resolve, reject);
    });
    return {
      db: connection,
      giveBack: async (isBroken) => (isBroken ? connection.destroy() : connection.release()),
    };
  }

  #send({ sql, params }: Pick<Statement, 'sql' | 'params'>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const done = (error: unknown, result: unknown): void => {
        if (error) reject(error);
        else resolve(result);
      };
      // The options that a connection may have set otherwise.
      const options = { sql, values: params, rowsAsArray: false, nestTables: false, typeCast: asItIs };
      // Values go beside the statement: to write them into it would need to know how the server reads a backslash.
      if (params.length > 0) this.#raw.execute(options, done);
      else this.#raw.query(options, done);
    });
  }
}
