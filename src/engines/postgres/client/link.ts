/**
 * The connection that holds the locks of one `advisory` session. It is never of the pool: a lock that goes back into a pool
 * with its connection is held by nobody and freed by nobody.
 *
 * Whether it still lives is known on both sides. We ask at least with every beat; the server ends a connection that it has
 * heard nothing of for one ttl, and by then our validity is over. A statement without an answer is waited for until then:
 * a server that hangs for a moment has not lost anything.
 */
import { ConfigError } from '../../../core/errors.js';
import { ask, type Database, farewell, type PgClient, type Row, within } from './database.js';
import { explain, isRefusal } from './errors.js';

export interface LinkOptions {
  readonly database: Database;
  readonly ttlMs: number;
  readonly channel: string;
  message(text: string): void;
  /** All that it held is lost. */
  lost(why: string): void;
}

/** The connection is ours alone, so it has the settings that we need, whatever those of the user, the database and the pool. */
const OWN_SETTINGS = `SELECT pg_catalog.set_config('idle_session_timeout', $1, false),
  pg_catalog.set_config('statement_timeout', '0', false), pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false)`;

export class Link {
  readonly #options: LinkOptions;
  readonly #client: PgClient;
  /** Statements go one after the other. */
  #last: Promise<unknown> = Promise.resolve();
  #over = false;

  static async open(options: LinkOptions): Promise<Link> {
    const link = new Link(options);
    try {
      await link.#connect();
      return link;
    } catch (error) {
      link.#end(error);
      throw explain(error);
    }
  }

  private constructor(options: LinkOptions) {
    this.#options = options;
    this.#client = options.database.aside();
    this.#client.on('error', (error) => this.#end(error));
    this.#client.on('end', () => this.#end());
    this.#client.on('notification', ({ payload = '' }) => options.message(payload));
  }

  get over(): boolean {
    return this.#over;
  }

  async query(text: string, values: readonly unknown[] = []): Promise<readonly Row[]> {
    try {
      return await this.#ask(text, values).catch(async (error: unknown) => {
        if (await this.#options.database.remade(error)) return this.#ask(text, values);
        throw error;
      });
    } catch (error) {
      throw explain(error);
    }
  }

  #ask(text: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const question = { text, values, limitMs: this.#options.ttlMs, prepares: true };
    const answer = this.#last.then(() => ask(this.#client, question));
    this.#last = answer.catch((error: unknown) => {
      if (!isRefusal(error)) this.#end(error);
    });
    return answer;
  }

  /** Whether it lives, on a server that takes writes: of one that does not any more others have left for its successor. */
  async prove(): Promise<void> {
    const [[isReadOnly] = []] = await this.query(`SELECT pg_catalog.current_setting('transaction_read_only')`);
    if (isReadOnly !== 'off') this.#end(new Error('the server has become read-only'));
  }

  close(): Promise<void> {
    this.#over = true;
    return farewell(this.#client, this.#options.database.limitMs);
  }

  async #connect(): Promise<void> {
    const { ttlMs, channel, database } = this.#options;
    await within(database.limitMs, this.#client.connect());
    // Held locks keep no process alive.
    this.#client.unref();
    const [[pid] = []] = await this.query('SELECT pg_catalog.pg_backend_pid()::text');
    if (Number(pid) !== this.#client.processID) {
      throw new ConfigError(
        'postgres: advisory locks belong to a connection, and a pooler is between us and the server. Connect to the server itself, or use the strategy queue.',
      );
    }
    await this.query(OWN_SETTINGS, [`${Math.ceil(ttlMs)}`]);
    await this.query(`LISTEN "${channel}"`);
  }

  #end(error?: unknown): void {
    if (this.#over) return;
    void this.close();
    this.#options.lost(error instanceof Error ? error.message : 'the connection ended');
  }
}
