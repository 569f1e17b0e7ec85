/**
 * The connection that listens: one for each engine, beside the pool. Every beat goes over it, so one that is silently
 * dead is noticed by the next beat, and beats wait for nobody who keeps the pool busy.
 *
 * It counts as hearing only when a message to ourselves, sent over another connection, has come through. A pooler that
 * shares connections between transactions (PgBouncer) accepts LISTEN and then gives the connection to somebody else: no
 * error, no messages. Until the message has come, the waiting ask by themselves, from time to time.
 */
import type { Clock, Timer } from '../../../core/clock.js';
import { quietly } from '../../../kit/message.js';
import { warnOnce } from '../../../kit/warn-once.js';
import { ask, type Database, farewell, type PgClient, type Row } from './database.js';
import { explain, isRefusal } from './errors.js';

export interface ListenerOptions {
  readonly database: Database;
  readonly clock: Clock;
  readonly channel: string;
  message(text: string): void;
  /** It hears, for the first time or again: messages may have been missed. */
  resumed(): void;
}

const RETRY_MS = 200;
/** Longer than any message takes to come. */
const DEAF_AFTER_MS = 3_000;
const PROOF = 'proof ';
/** The connection is ours alone, so it has the level that beats need, whatever that of the role or of the database. */
const OWN_ISOLATION = `SELECT pg_catalog.set_config('default_transaction_isolation', 'read committed', false)`;

export class Listener {
  readonly #options: ListenerOptions;
  #client: PgClient | undefined;
  #asking = false;
  #proof = '';
  #hears = false;
  #timer: Timer | undefined;
  #closed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
    // Beats would go to one server, and the claims that they are about to another.
    options.database.turnedReadOnly = () => this.#client && this.#lose(this.#client);
  }

  /** Begins to listen, if it does not already. */
  start(): void {
    if (!this.#client && !this.#timer && !this.#closed) this.#connect();
  }

  get hears(): boolean {
    return this.#hears;
  }

  /**
   * Undefined: it does not hear, or somebody waits for an answer over it. One that does not come must not hold up the next
   * question.
   */
  tryQuery(text: string, values: readonly unknown[]): Promise<readonly Row[]> | undefined {
    return this.#client && this.#hears && !this.#asking ? this.#query(this.#client, text, values) : undefined;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#hears = false;
    this.#timer?.close();
    if (this.#client) await farewell(this.#client, this.#options.database.limitMs);
  }

  async #query(client: PgClient, text: string, values: readonly unknown[]): Promise<readonly Row[]> {
    this.#asking = true;
    try {
      return await ask(client, { text, values, limitMs: this.#options.database.patienceMs });
    } catch (error) {
      if (!isRefusal(error)) this.#lose(client);
      throw explain(error);
    } finally {
      if (client === this.#client) this.#asking = false;
    }
  }

  #connect(): void {
    const { database, channel } = this.#options;
    const client = database.aside();
    this.#client = client;
    this.#asking = false;
    client.on('error', () => this.#lose(client));
    client.on('end', () => this.#lose(client));
    client.on('notification', ({ payload = '' }) => quietly(() => this.#heard(client, payload)));
    client
      .connect()
      .then(async () => {
        // Held locks keep no process alive.
        client.unref();
        await ask(client, { text: OWN_ISOLATION, limitMs: database.patienceMs });
        await ask(client, { text: `LISTEN "${channel}"`, limitMs: database.patienceMs });
        this.prove();
        this.#suspect(client);
      })
      .catch(() => this.#lose(client));
  }

  /** Asks for a sign that messages come through. Called with every beat until there was one. */
  prove(): void {
    if (this.#hears || this.#closed) return;
    const { database, clock, channel } = this.#options;
    this.#proof = PROOF + clock.id();
    database.query('SELECT pg_catalog.pg_notify($1, $2)', [channel, this.#proof]).catch(() => {
      // The next beat tries again.
    });
  }

  #heard(client: PgClient, text: string): void {
    if (client !== this.#client) return;
    if (!text.startsWith(PROOF)) return this.#options.message(text);
    if (text !== this.#proof || this.#hears) return;
    this.#hears = true;
    // No pooler shares our connections.
    this.#options.database.prepares = true;
    this.#options.resumed();
  }

  #suspect(client: PgClient): void {
    this.#timer = this.#options.clock.timer(DEAF_AFTER_MS, () => {
      if (client === this.#client && !this.#hears && !this.#closed) warnDeaf();
    });
    this.#timer.unref();
  }

  #lose(client: PgClient): void {
    if (client !== this.#client || this.#closed) return;
    this.#client = undefined;
    this.#hears = false;
    this.#timer?.close();
    // With a statement that is not answered, `pg` destroys the socket instead of saying good-bye.
    client.end().catch(() => {});
    this.#timer = this.#options.clock.timer(RETRY_MS, () => this.#connect());
    this.#timer.unref();
  }
}

function warnDeaf(): void {
  warnOnce(
    'PostgreSQL’s messages (LISTEN) do not come through, probably because of a pooler that shares connections between ' +
      'transactions: waiting locks ask every 100 ms instead. Connect to the server itself, or to a pool in session mode.',
  );
}
