import type { Clock } from '../../../core/clock.js';
import type { Engine, EngineSetup, OpenOptions, Session, SessionListener } from '../../../core/engine.js';
import { SlotSession } from '../../../kit/slot-session.js';
import type { Names } from '../../../sql/postgres-names.js';
import type { Database } from '../client/database.js';
import { proveSessionLocks } from '../exclusion.js';
import { PostgresRegisters } from '../registers.js';
import { AdvisoryStore, type AdvisoryStoreSetup } from './store.js';

export class AdvisoryEngine implements Engine {
  readonly registers: PostgresRegisters;
  readonly #setup: Omit<AdvisoryStoreSetup, 'ttlMs' | 'lost'>;
  readonly #clock: Clock;

  constructor(database: Database, names: Names, { namespace, clock }: EngineSetup) {
    this.registers = new PostgresRegisters(database, names, namespace);
    this.#clock = clock;
    this.#setup = { database, names, namespace, registers: this.registers };
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const { database, names, namespace } = this.#setup;
    const { ttlMs } = options;
    database.serve(ttlMs);
    const insert = `INSERT INTO ${names.of('floor')} (namespace) VALUES ($1) ON CONFLICT DO NOTHING`;
    await database.query(insert, [namespace]);
    let store: AdvisoryStore;
    const session = new SlotSession({
      options,
      listener,
      clock: this.#clock,
      store: (lost) => (store = new AdvisoryStore({ ...this.#setup, ttlMs, lost })),
    });
    // Who is not let in, or comes through a pooler, should hear it now.
    await store!.connect();
    try {
      await proveSessionLocks(database);
    } catch (error) {
      await session.close();
      throw error;
    }
    return session;
  }

  async ping(): Promise<void> {
    await this.#setup.database.query('SELECT 1', []);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#setup.database.close();
  }
}
