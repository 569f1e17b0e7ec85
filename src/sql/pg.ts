/** `pg`: a Client, a client of a Pool, or a Pool. */
import { EngineError } from '../core/errors.js';
import type { Borrowed, Row, SqlPort } from './port.js';
import type { Statement } from './statement.js';
import { unanswered } from './unanswered.js';

interface PgClient {
  query(text: string, values: unknown[]): Promise<Result>;
  /** Recent versions have it: 'I' is idle, outside of any transaction. */
  getTransactionStatus?(): string | null;
}

interface Result {
  readonly rows: readonly Row[];
  readonly rowCount: number | null;
  /** The server's word for what was done. */
  readonly command: string;
}

interface PgPool {
  connect(): Promise<PooledClient>;
}

interface Heard {
  on(event: 'error', listener: () => void): unknown;
  off(event: 'error', listener: () => void): unknown;
}

interface PooledClient extends PgClient, Heard {
  release(isBroken: boolean): void;
}

/** What a client was made with. Its password is hidden from whoever copies or prints it. */
interface Parameters {
  readonly password?: unknown;
}

interface NewClient extends PgClient, Heard {
  connect(): Promise<unknown>;
  end(): Promise<void>;
}

/** A connection that the server ends while nobody asks it would end the process. Whoever uses it is told by the next statement. */
function unheard(): void {}

const CONNECT_WITHIN_MS = 5_000;

export function isPg(db: object): db is PgClient {
  const { query, processID, escapeIdentifier, totalCount } = db as Record<string, unknown>;
  if (typeof query !== 'function') return false;
  return typeof totalCount === 'number' || processID !== undefined || typeof escapeIdentifier === 'function';
}

/** Else there is no connection any more, or nobody waited for the answer. */
function isVerdict(error: unknown): boolean {
  return (error as { severity?: unknown }).severity === 'ERROR';
}

export class PgPort implements SqlPort {
  readonly dialect = 'postgres';
  readonly isPool: boolean;
  readonly #client: PgClient;

  constructor(client: PgClient) {
    this.#client = client;
    this.isPool = 'totalCount' in client;
  }

  async isInTransaction(): Promise<boolean | undefined> {
    const status = this.#client.getTransactionStatus?.();
    return status ? status !== 'I' : undefined;
  }

  async rows({ sql, params }: Statement): Promise<readonly Row[]> {
    return (await this.#client.query(sql, [...params])).rows;
  }

  async change({ sql, params }: Statement): Promise<number> {
    return (await this.#client.query(sql, [...params])).rowCount ?? 0;
  }

  exec(sql: string): Promise<Result> {
    return this.#client.query(sql, []);
  }

  /** PostgreSQL answers to COMMIT with ROLLBACK, and without an error, where a statement had failed before. */
  async commit(): Promise<void> {
    const { command } = await this.exec('COMMIT').catch((error: unknown) => {
      throw isVerdict(error) ? error : unanswered(error);
    });
    if (command === 'ROLLBACK')
      throw new EngineError(
        'Nothing was committed: a statement of the transaction had failed, and its error was not thrown on.',
        { retryable: false },
      );
  }

  async borrow(): Promise<Borrowed> {
    const client = await (this.#client as unknown as PgPool).connect();
    client.on('error', unheard);
    return {
      db: client,
      giveBack: async (isBroken) => {
        client.off('error', unheard);
        client.release(isBroken);
      },
    };
  }

  async beside(): Promise<Borrowed> {
    const { connectionParameters, constructor } = this.#client as unknown as {
      readonly connectionParameters: Parameters;
      readonly constructor: new (options: object) => NewClient;
    };
    const { password } = connectionParameters;
    const client = new constructor({
      ...connectionParameters,
      password,
      connectionTimeoutMillis: CONNECT_WITHIN_MS,
    });
    client.on('error', unheard);
    await client.connect();
    return { db: client, giveBack: () => client.end() };
  }
}
