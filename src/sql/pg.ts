/** `pg`: a Client, a client of a Pool, or a Pool. */
import type { Row, SqlPort } from './port.js';
import type { Statement } from './statement.js';

interface PgClient {
  query(text: string, values: unknown[]): Promise<{ readonly rows: readonly Row[]; readonly rowCount: number | null }>;
  /** Recent versions have it: 'I' is idle, outside of any transaction. */
  getTransactionStatus?(): string | null;
}

export function isPg(db: object): db is PgClient {
  const { query, processID, escapeIdentifier, totalCount } = db as Record<string, unknown>;
  if (typeof query !== 'function') return false;
  return typeof totalCount === 'number' || processID !== undefined || typeof escapeIdentifier === 'function';
}

export class PgPort implements SqlPort {
  readonly dialect = 'postgres';
  readonly isPool: boolean;
  readonly #client: PgClient;

  constructor(client: PgClient) {
    this.#client = client;
    this.isPool = 'totalCount' in client;
  }

  get inTransaction(): boolean | undefined {
    const status = this.#client.getTransactionStatus?.();
    return status ? status !== 'I' : undefined;
  }

  async rows({ sql, params }: Statement): Promise<readonly Row[]> {
    return (await this.#client.query(sql, [...params])).rows;
  }

  async change({ sql, params }: Statement): Promise<number> {
    return (await this.#client.query(sql, [...params])).rowCount ?? 0;
  }
}
