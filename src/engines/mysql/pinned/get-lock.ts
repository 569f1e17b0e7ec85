/**
 * The strategy `get-lock`: GET_LOCK(name), on a connection of its own (store.ts). The token is minted on the same
 * connection: that it answers proves the lock.
 *
 * Every expression has a name: mysql2 keeps a parser for all names of columns, and the server would name one after the lock.
 */
import { createHash } from 'node:crypto';
import type { Claim } from '../../../core/engine.js';
import { EngineError } from '../../../core/errors.js';
import type { SlotStore } from '../../../kit/slot-store.js';
import { bytes } from '../client/port.js';
import { type Latch, mintSql, mintValues, type PinnedSetup, PinnedStore } from './store.js';
import type { Settings } from '../client/settings.js';
import { IS_WRITABLE, type Pin } from './pins.js';
import type { StoreSetup } from '../rows/engine.js';

export function getLockStore(setup: PinnedSetup): SlotStore {
  return new PinnedStore(setup, new GetLock(setup));
}

/** Bound: the lock's name. */
const IS_OURS = 'IS_USED_LOCK(?) = CONNECTION_ID()';

class GetLock implements Latch {
  readonly settings: Settings = { autocommit: 1 };
  readonly #setup: StoreSetup;

  constructor(setup: StoreSetup) {
    this.#setup = setup;
  }

  async lock(pin: Pin, { line }: Claim, patienceMs: number): Promise<boolean> {
    const seconds = Math.ceil(patienceMs / 1_000);
    const [row] = await pin.ask(
      'SELECT GET_LOCK(?, ?) AS got',
      [this.#lockName(line.name), seconds],
      patienceMs + this.#setup.withinMs,
    );
    // NULL is neither: the wait was ended by somebody.
    return Number(row?.[0]) === 1;
  }

  async mint(pin: Pin, { line }: Claim): Promise<bigint> {
    await pin.ask(mintSql(this.#setup.prefix), mintValues(this.#setup, line.name), this.#setup.withinMs);
    const sql = `SELECT CAST(LAST_INSERT_ID() AS CHAR) AS token, ${IS_OURS} AS ours, ${IS_WRITABLE} AS writable`;
    const [row] = await pin.ask(sql, [this.#lockName(line.name)], this.#setup.withinMs);
    pin.mustBeWritable(row?.[2]);
    if (Number(row?.[1]) !== 1) throw new EngineError('The lock was lost before it was granted.');
    return BigInt(String(row![0]));
  }

  prove(pin: Pin, name: string): Promise<boolean | undefined> {
    return pin.proves(IS_OURS, [this.#lockName(name)], this.#setup.withinMs);
  }

  async unlock(pin: Pin, name: string): Promise<void> {
    await pin.ask('SELECT RELEASE_LOCK(?) AS freed', [this.#lockName(name)], this.#setup.withinMs);
  }

  /** At most 64 characters, the same in upper and lower case, and the server has one space of names for all databases. */
  #lockName(name: string): Buffer {
    const { namespace } = this.#setup;
    const hash = createHash('sha256').update(`${namespace.length}:`).update(namespace).update(name).digest('hex');
    return bytes(`hf_${hash.slice(0, 60)}`);
  }
}
