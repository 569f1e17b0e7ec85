/**
 * Connections that carry a lock: taken out of the pool, and given back only when it is certain that nothing is on them.
 * In all other cases they are destroyed, and the server frees what they had.
 *
 * A connection that breaks has lost its lock, and that is told at once. Against links that fall silent, the server is
 * told to end the session after one ttl without a word (`wait_timeout`); a holder says one every third of it. A server that
 * has become read-only is not the one that others ask any more: what is locked there is lost.
 */
import { EngineError } from '../../../core/errors.js';
import { clearTimeout, setTimeout } from '../../../core/real-time.js';
import type { Connections, Lent } from '../client/connections.js';
import { explained, READ_ONLY } from '../client/errors.js';
import { type Row, send, type Value } from '../client/port.js';
import type { Settings } from '../client/settings.js';

export class Pins {
  readonly #connections: Connections;
  readonly #limit: number;
  #count = 0;

  constructor(connections: Connections, limit: number) {
    this.#connections = connections;
    this.#limit = limit;
  }

  /** A connection with the settings of a holder. @param onBroken it broke, not by us. */
  async pin(settings: Settings, withinMs: number, onBroken: (detail: string) => void): Promise<Pin> {
    if (this.#count >= this.#limit) throw new EngineError(exhausted(this.#limit));
    this.#count += 1;
    let counted = true;
    const uncount = (): void => {
      if (counted) this.#count -= 1;
      counted = false;
    };
    try {
      await this.#connections.tenure.arrived();
      const lent = await this.#lent(withinMs);
      const pin = new Pin({ lent, uncount, onBroken });
      await pin.prepare(settings, withinMs);
      return pin;
    } catch (error) {
      uncount();
      throw explained(error);
    }
  }

  close(): Promise<void> {
    return this.#connections.end();
  }

  #lent(withinMs: number): Promise<Lent> {
    return new Promise((resolve, reject) => {
      let late = false;
      const timer = setTimeout(() => {
        late = true;
        reject(new EngineError(exhausted(this.#limit)));
      }, withinMs);
      this.#connections
        .take(() => late)
        .then(resolve, reject)
        .finally(() => clearTimeout(timer));
    });
  }
}

function exhausted(limit: number): string {
  return (
    `No connection is free for another lock: with this strategy each lock, held or waited for, needs one. ` +
    `At most ${limit} are allowed, or fewer where the pool has fewer. Raise 'connections' and the pool's connectionLimit, or use the strategy 'queue'.`
  );
}

/** Some versions answer a number, and some a word. */
export const IS_WRITABLE = `@@GLOBAL.read_only IN ('0', 'OFF')`;

interface PinSetup {
  readonly lent: Lent;
  readonly uncount: () => void;
  readonly onBroken: (detail: string) => void;
}

export class Pin {
  readonly #setup: PinSetup;
  readonly #lent: Lent;
  readonly #forgetTenure: () => void;
  #over = false;

  constructor(setup: PinSetup) {
    this.#setup = setup;
    this.#lent = setup.lent;
    this.#lent.connection.on('error', this.#broke);
    this.#lent.connection.on('end', this.#broke);
    this.#forgetTenure = this.#lent.tenure.onEnd(() => this.#break('the server became read-only'));
  }

  get over(): boolean {
    return this.#over;
  }

  async prepare(settings: Settings, withinMs: number): Promise<void> {
    try {
      // What is set on a connection of ours stays: its next use is the same.
      await this.#within(withinMs, this.#lent.prepare(settings, true));
    } catch (error) {
      this.#lent.failed(error);
      this.destroy();
      throw error;
    }
  }

  /** After a deadline the connection is no longer usable, because what was asked may still happen on it. */
  async ask(sql: string, values: readonly Value[], withinMs: number): Promise<readonly Row[]> {
    try {
      return (await this.#within(withinMs, send(this.#lent.connection, sql, values))) as readonly Row[];
    } catch (error) {
      if (error === SILENT) this.destroy();
      else this.#lent.failed(error);
      throw error;
    }
  }

  /** Whether a condition is true, of a server that takes writes. Undefined: no answer in time, which says nothing. */
  async proves(condition: string, values: readonly Value[], withinMs: number): Promise<boolean | undefined> {
    if (this.#over) return false;
    const sql = `SELECT ${condition} AS ours, ${IS_WRITABLE} AS writable`;
    try {
      const [row] = (await this.#within(withinMs, send(this.#lent.connection, sql, values))) as readonly Row[];
      this.mustBeWritable(row?.[1]);
      return Number(row?.[0]) === 1;
    } catch (error) {
      return error === SILENT ? undefined : false;
    }
  }

  /** @param answer to `IS_WRITABLE` */
  mustBeWritable(answer: unknown): void {
    if (Number(answer) === 1) return;
    this.#lent.tenure.endOf(this.#lent.connection);
    throw new EngineError(READ_ONLY);
  }

  /** Nothing is on it any more. */
  giveBack(withinMs: number): void {
    if (this.#over) return;
    this.#end();
    this.#lent.giveBack(withinMs);
  }

  destroy(): void {
    if (this.#over) return;
    this.#end();
    this.#lent.destroy();
  }

  readonly #broke = (error?: unknown): void => {
    // MySQL says goodbye with a number (4031: silent for too long).
    const { code } = (error ?? {}) as { code?: string | number };
    this.#break(code === undefined ? 'the server ended it' : `${code}`);
  };

  #break(detail: string): void {
    if (this.#over) return;
    // Out of the pool, whatever it thinks of it.
    this.destroy();
    this.#setup.onBroken(detail);
  }

  #end(): void {
    this.#over = true;
    this.#setup.uncount();
    this.#forgetTenure();
    this.#lent.connection.removeListener('error', this.#broke);
    this.#lent.connection.removeListener('end', this.#broke);
  }

  #within<T>(ms: number, work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(SILENT), ms);
      work.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }
}

const SILENT = new EngineError('The database did not answer in time.');
