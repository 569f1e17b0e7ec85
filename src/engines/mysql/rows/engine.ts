/** The engine of all strategies that have one slot for each name; what a slot is, its store knows. */
import type { Engine, EngineSetup, OpenOptions, Session, SessionListener } from '../../../core/engine.js';
import type { Loss } from '../../../core/errors.js';
import { SlotSession } from '../../../kit/slot-session.js';
import type { SlotStore } from '../../../kit/slot-store.js';
import { callMs, type Database } from '../client/database.js';
import { bytes, text } from '../client/port.js';
import { MysqlRegisters } from '../registers.js';
import { RowSweeper } from './sweeper.js';

/** What a store is made of, for one session. */
export interface StoreSetup {
  readonly database: Database;
  readonly prefix: string;
  readonly namespace: Buffer;
  readonly ttlMs: number;
  /** For one call. */
  readonly withinMs: number;
  /** Else it is MySQL. */
  readonly mariadb: boolean;
  readonly sweeper: RowSweeper;
  readonly lost: (claimId: string, loss: Loss) => void;
}

export interface SlotEngineSetup {
  readonly database: Database;
  readonly prefix: string;
  /** Those that rows are left in. */
  readonly tables: readonly string[];
  readonly store: (setup: StoreSetup) => SlotStore;
  /** What has to be true of the server before locks rest on it; asked once. Rejects if it is not. */
  readonly prove?: (withinMs: number) => Promise<void>;
  /** What else the engine has opened. */
  readonly close: () => Promise<void>;
}

export class SlotEngine implements Engine {
  readonly registers: MysqlRegisters;
  readonly #setup: SlotEngineSetup;
  readonly #engine: EngineSetup;
  readonly #sweeper: RowSweeper;
  #proof: Promise<void> | undefined;

  constructor(setup: SlotEngineSetup, engine: EngineSetup) {
    const { database, prefix, tables } = setup;
    this.#setup = setup;
    this.#engine = engine;
    this.registers = new MysqlRegisters(database, engine.namespace, prefix);
    const { registers } = this;
    const namespace = bytes(engine.namespace);
    this.#sweeper = new RowSweeper({ database, prefix, tables, registers, namespace, clock: engine.clock });
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const { database, prefix, store } = this.#setup;
    const { ttlMs } = options;
    // There is nothing to open. But who is not let in should hear it now.
    await this.#prove(callMs(ttlMs));
    const [row] = await database.rows('SELECT VERSION() AS version', [], { withinMs: callMs(ttlMs), urgent: true });
    const setup = {
      database,
      prefix,
      namespace: bytes(this.#engine.namespace),
      ttlMs,
      withinMs: callMs(ttlMs),
      mariadb: /mariadb/i.test(text(row?.[0])),
    };
    return new SlotSession({
      options,
      listener,
      clock: this.#engine.clock,
      store: (lost) => store({ ...setup, sweeper: this.#sweeper, lost }),
    });
  }

  #prove(withinMs: number): Promise<void> {
    this.#proof ??= (this.#setup.prove?.(withinMs) ?? Promise.resolve()).catch((error: unknown) => {
      this.#proof = undefined;
      throw error;
    });
    return this.#proof;
  }

  async ping(): Promise<void> {
    await this.#setup.database.rows('SELECT 1', [], { urgent: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#sweeper.close();
    await this.#setup.close();
    await this.#setup.database.close();
  }
}
