/**
 * Connections that carry a lock: taken out of the pool, and given back only when it is certain that nothing is on them.
 * In all other cases they are destroyed, and the server frees what they had.
 *
 * A connection that breaks has lost its lock, and that is told at once. Against links that fall silent, the server is
 * told to end the session after one ttl without a word (`wait_timeout`); a holder says one every third of it.
 */
import { EngineError } from '../../../core/errors.js';
import { bound, type RawConnection, type RawPool, type Row, send, type Value } from '../client/database.js';
import { explained } from '../client/errors.js';

/** Variables of a session, as SQL. */
export type PinSettings = Readonly<Record<string, string | number>>;

export class Pins {
  readonly #pool: RawPool;
  readonly #owned: boolean;
  readonly #limit: number;
  #count = 0;

  constructor(pool: RawPool, owned: boolean, limit: number) {
    this.#pool = pool;
    this.#owned = owned;
    this.#limit = limit;
  }

  /** A connection with the settings of a holder. @param onBroken it broke, not by us. */
  async pin(settings: PinSettings, withinMs: number, onBroken: (detail: string) => void): Promise<Pin> {
    if (this.#count >= this.#limit) throw new EngineError(exhausted(this.#limit));
    this.#count += 1;
    let counted = true;
    const uncount = (): void => {
      if (counted) this.#count -= 1;
      counted = false;
    };
    try {
      const connection = await this.#connection(withinMs);
      const pin = new Pin({ connection, settings, isOwned: this.#owned, uncount, onBroken });
      await pin.set(withinMs);
      return pin;
    } catch (error) {
      uncount();
      throw explained(error);
    }
  }

  close(): Promise<void> {
    return this.#owned ? new Promise((resolve) => this.#pool.end(() => resolve())) : Promise.resolve();
  }

  #connection(withinMs: number): Promise<RawConnection> {
    return new Promise((resolve, reject) => {
      let late = false;
      const timer = setTimeout(() => {
        late = true;
        reject(new EngineError(exhausted(this.#limit)));
      }, withinMs);
      this.#pool.getConnection((error, connection) => {
        clearTimeout(timer);
        if (error) return reject(error);
        if (late) return connection.release();
        return resolve(connection);
      });
    });
  }
}

function exhausted(limit: number): string {
  return (
    `No connection is free for another lock: with this strategy each lock, held or waited for, needs one. ` +
    `At most ${limit} are allowed, or fewer where the pool has fewer. Raise 'connections' and the pool's connectionLimit, or use the strategy 'queue'.`
  );
}

/** Settings of connections of ours, which stay as they are. */
const KNOWN = new WeakMap<RawConnection, string>();

interface PinSetup {
  readonly connection: RawConnection;
  readonly settings: PinSettings;
  readonly isOwned: boolean;
  readonly uncount: () => void;
  readonly onBroken: (detail: string) => void;
}

export class Pin {
  readonly #setup: PinSetup;
  readonly #connection: RawConnection;
  #over = false;

  constructor(setup: PinSetup) {
    this.#setup = setup;
    this.#connection = setup.connection;
    this.#connection.on('error', this.#broke);
    this.#connection.on('end', this.#broke);
  }

  get over(): boolean {
    return this.#over;
  }

  async set(withinMs: number): Promise<void> {
    const { settings, isOwned } = this.#setup;
    const sql = setting(Object.entries(settings));
    if (isOwned && KNOWN.get(this.#connection) === sql) return;
    await this.ask(sql, [], withinMs);
    KNOWN.set(this.#connection, sql);
  }

  /** After a deadline the connection is no longer usable, because what was asked may still happen on it. */
  async ask(sql: string, values: readonly Value[], withinMs: number): Promise<readonly Row[]> {
    try {
      return (await this.#within(withinMs, send(this.#connection, bound(sql, values), []))) as readonly Row[];
    } catch (error) {
      if (error === SILENT) this.destroy();
      throw error;
    }
  }

  /** Whether it answers. Undefined: not in time, which says nothing. */
  async proves(sql: string, values: readonly Value[], withinMs: number): Promise<boolean | undefined> {
    if (this.#over) return false;
    try {
      const rows = (await this.#within(withinMs, send(this.#connection, bound(sql, values), []))) as readonly Row[];
      return Number(rows[0]?.[0]) === 1;
    } catch (error) {
      return error === SILENT ? undefined : false;
    }
  }

  /** Nothing is on it any more. */
  async giveBack(withinMs: number): Promise<void> {
    if (this.#over) return;
    try {
      const { settings, isOwned } = this.#setup;
      if (!isOwned) await this.ask(setting(Object.keys(settings).map((name) => [name, 'DEFAULT'])), [], withinMs);
      this.#end();
      this.#connection.release();
    } catch {
      this.destroy();
    }
  }

  destroy(): void {
    if (this.#over) return;
    this.#end();
    this.#connection.destroy();
  }

  readonly #broke = (error?: unknown): void => {
    if (this.#over) return;
    this.#end();
    // Out of the pool, whatever it thinks of it.
    this.#connection.destroy();
    // MySQL says goodbye with a number (4031: silent for too long).
    const { code } = (error ?? {}) as { code?: string | number };
    this.#setup.onBroken(code === undefined ? 'the server ended it' : `${code}`);
  };

  #end(): void {
    this.#over = true;
    this.#setup.uncount();
    this.#connection.removeListener('error', this.#broke);
    this.#connection.removeListener('end', this.#broke);
  }

  #within<T>(ms: number, work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(SILENT), ms);
      work.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }
}

function setting(values: readonly (readonly [string, string | number])[]): string {
  return `SET ${values.map(([name, value]) => `@@SESSION.${name} = ${value}`).join(', ')}`;
}

const SILENT = new EngineError('The database did not answer in time.');
