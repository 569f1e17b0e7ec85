/**
 * The strategies `get-lock` and `for-update`: the lock belongs to a connection of its own, and the server keeps the queue.
 *
 *     get-lock     GET_LOCK(name). The token is minted on the same connection: that it answers proves the lock
 *     for-update   a transaction with SELECT … FOR UPDATE on a row found by its primary key; LOCK IN SHARE MODE for
 *                  readers. The token is minted and committed elsewhere, then the transaction proves that it still lives
 *
 * What can go wrong: a restart of the server frees everything at once, and so does a connection that breaks or is killed.
 * The holder hears of that at once if the network tells it, and after its validity at the latest; the next may have
 * been granted before. Only the fence covers that.
 */
import { createHash } from 'node:crypto';
import type { Claim, ClaimRef } from '../../core/engine.js';
import { EngineError } from '../../core/errors.js';
import { ALL } from '../../core/line.js';
import type { HeldSlot, Pace, SlotStore, Taken } from '../../core/slots.js';
import { bytes, type Value } from './client.js';
import type { Pin, Pins } from './pins.js';
import type { StoreSetup } from './slot-engine.js';
import { firstToken, NOW } from './tables.js';
import { errnoOf, explained } from './trouble.js';

interface PinnedSetup extends StoreSetup {
  readonly pins: Pins;
}

/** The server's own patience: MySQL counts it in whole seconds. */
const PATIENCE_MS = 1_000;

interface Holding {
  taking: Promise<Taken> | undefined;
  /** Whether the server may let it wait. */
  readonly patient: boolean;
  pin: Pin | undefined;
  token: bigint | undefined;
  dropped: boolean;
}

/** How a strategy locks on a connection. */
interface Latch {
  readonly autocommit: boolean;
  /** False: busy, and nothing is on the connection. */
  lock(pin: Pin, claim: Claim, patienceMs: number): Promise<boolean>;
  mint(pin: Pin, claim: Claim): Promise<bigint>;
  prove(pin: Pin, name: string): Promise<boolean | undefined>;
  unlock(pin: Pin, name: string): Promise<void>;
}

export function getLockStore(setup: PinnedSetup): SlotStore {
  return new PinnedStore(setup, new GetLock(setup));
}

export function forUpdateStore(setup: PinnedSetup): SlotStore {
  return new PinnedStore(setup, new ForUpdate(setup));
}

class PinnedStore implements SlotStore {
  readonly pace: Pace = { firstMs: 5, mostMs: 50, patienceMs: PATIENCE_MS };
  readonly #setup: PinnedSetup;
  readonly #latch: Latch;
  /** By claim, also of those that only ask yet. */
  readonly #holdings = new Map<string, Holding>();

  constructor(setup: PinnedSetup, latch: Latch) {
    this.#setup = setup;
    this.#latch = latch;
  }

  async take(claim: Claim, patienceMs: number): Promise<Taken> {
    this.#setup.sweeper.used();
    const known = this.#holdings.get(claim.id);
    if (known?.token !== undefined) return { token: known.token };
    // Asked twice at once: one connection, one answer.
    if (known?.taking) return known.taking;
    const holding: Holding = {
      taking: undefined,
      patient: patienceMs > 0,
      pin: undefined,
      token: undefined,
      dropped: false,
    };
    this.#holdings.set(claim.id, holding);
    holding.taking = this.#take(claim, patienceMs, holding).catch((error: unknown) => {
      this.#abandon(claim.id, holding);
      throw explained(error);
    });
    return holding.taking;
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const proofs = await Promise.all(
      slots.map(async ({ id, line }) => {
        const pin = this.#holdings.get(id)?.pin;
        return { id, proven: pin ? await this.#latch.prove(pin, line.name) : false };
      }),
    );
    if (proofs.every(({ proven }) => proven === undefined))
      throw new EngineError('The database did not answer in time.');
    // A server that answers on one connection and not on another: nothing can be known of the lock on that.
    const lost = proofs.filter(({ proven }) => proven !== true).map(({ id }) => id);
    for (const id of lost) {
      const holding = this.#holdings.get(id);
      if (holding) this.#abandon(id, holding);
    }
    return lost;
  }

  async drop({ id, line: { name } }: ClaimRef): Promise<boolean> {
    const holding = this.#holdings.get(id);
    if (!holding) return false;
    const { pin, token } = holding;
    if (!pin || token === undefined) {
      // What answers at once is waited for: after a broken connection the server frees the lock only a moment later.
      holding.dropped = true;
      if (!holding.patient) await holding.taking?.catch(() => {});
      this.#abandon(id, holding);
      return false;
    }
    this.#holdings.delete(id);
    holding.dropped = true;
    if (pin.over) return false;
    try {
      await this.#latch.unlock(pin, name);
      await pin.giveBack(this.#setup.withinMs);
    } catch {
      pin.destroy();
    }
    return true;
  }

  async close(): Promise<void> {
    for (const [id, holding] of this.#holdings) this.#abandon(id, holding);
  }

  async #take(claim: Claim, patienceMs: number, holding: Holding): Promise<Taken> {
    const { pins, ttlMs, withinMs } = this.#setup;
    const broken = (detail: string): void => {
      if (this.#holdings.get(claim.id) === holding) this.#holdings.delete(claim.id);
      if (holding.token !== undefined) this.#setup.lost(claim.id, { reason: 'connection', detail });
    };
    const pin = await pins.pin({ ttlMs, autocommit: this.#latch.autocommit }, withinMs, broken);
    holding.pin = pin;
    if (holding.dropped) {
      pin.destroy();
      return { freeInMs: undefined };
    }
    if (!(await this.#latch.lock(pin, claim, patienceMs))) {
      if (this.#holdings.get(claim.id) === holding) this.#holdings.delete(claim.id);
      await pin.giveBack(withinMs);
      return { freeInMs: undefined };
    }
    if (holding.dropped) {
      await this.#latch.unlock(pin, claim.line.name);
      await pin.giveBack(withinMs);
      return { freeInMs: undefined };
    }
    const token = await this.#latch.mint(pin, claim);
    if (pin.over || holding.dropped) throw new EngineError('The connection was lost before the lock was granted.');
    holding.token = token;
    return { token };
  }

  #abandon(id: string, holding: Holding): void {
    holding.dropped = true;
    if (this.#holdings.get(id) === holding) this.#holdings.delete(id);
    holding.pin?.destroy();
  }
}

/** A token above all that this name has had. Bound: the key, the namespace. */
function mintSql(p: string): string {
  return `INSERT INTO ${p}mint (namespace, name, owner, token, until)
    VALUES (?, ?, '', LAST_INSERT_ID(${firstToken(p)}), ${NOW})
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, ${NOW})), until = ${NOW}`;
}

function mintValues({ namespace }: StoreSetup, name: string): readonly Value[] {
  return [namespace, bytes(name), namespace];
}

class GetLock implements Latch {
  readonly autocommit = true;
  readonly #setup: StoreSetup;

  constructor(setup: StoreSetup) {
    this.#setup = setup;
  }

  async lock(pin: Pin, { line }: Claim, patienceMs: number): Promise<boolean> {
    const seconds = Math.ceil(patienceMs / 1_000);
    const [row] = await pin.ask(
      'SELECT GET_LOCK(?, ?)',
      [this.#lockName(line.name), seconds],
      patienceMs + this.#setup.withinMs,
    );
    // NULL is neither: the wait was ended by somebody.
    return Number(row?.[0]) === 1;
  }

  async mint(pin: Pin, { line }: Claim): Promise<bigint> {
    await pin.ask(mintSql(this.#setup.prefix), mintValues(this.#setup, line.name), this.#setup.withinMs);
    const sql = `SELECT CAST(LAST_INSERT_ID() AS CHAR), IS_USED_LOCK(?) = CONNECTION_ID()`;
    const [row] = await pin.ask(sql, [this.#lockName(line.name)], this.#setup.withinMs);
    if (Number(row?.[1]) !== 1) throw new EngineError('The lock was lost before it was granted.');
    return BigInt(String(row![0]));
  }

  prove(pin: Pin, name: string): Promise<boolean | undefined> {
    return pin.proves('SELECT IS_USED_LOCK(?) = CONNECTION_ID()', [this.#lockName(name)], this.#setup.withinMs);
  }

  async unlock(pin: Pin, name: string): Promise<void> {
    await pin.ask('DO RELEASE_LOCK(?)', [this.#lockName(name)], this.#setup.withinMs);
  }

  /** At most 64 characters, the same in upper and lower case, and the server has one space of names for all databases. */
  #lockName(name: string): Buffer {
    const { namespace } = this.#setup;
    const hash = createHash('sha256').update(`${namespace.length}:`).update(namespace).update(name).digest('hex');
    return bytes(`hf_${hash.slice(0, 60)}`);
  }
}

/** A wait for a row that took too long; a row that others have, asked for with NOWAIT. */
const BUSY = new Set([1205, 3572]);

class ForUpdate implements Latch {
  readonly autocommit = false;
  readonly #setup: StoreSetup;

  constructor(setup: StoreSetup) {
    this.#setup = setup;
  }

  async lock(pin: Pin, claim: Claim, patienceMs: number): Promise<boolean> {
    const { namespace, withinMs } = this.#setup;
    const key = [namespace, bytes(claim.line.name)];
    for (;;) {
      try {
        const rows = await pin.ask(this.#find(claim, patienceMs), key, patienceMs + withinMs);
        if (rows.length > 0) return true;
      } catch (error) {
        if (!BUSY.has(errnoOf(error))) throw error;
        await pin.ask('ROLLBACK', [], withinMs);
        return false;
      }
      // The row is not there, or not any more.
      await this.#insert(pin, key);
    }
  }

  async mint(pin: Pin, { line }: Claim): Promise<bigint> {
    const { database, withinMs } = this.#setup;
    const { said } = await database.change(mintSql(this.#setup.prefix), mintValues(this.#setup, line.name), {
      withinMs,
    });
    // Whoever was cut off meanwhile must not go on with a token that is above its successor's.
    if ((await this.prove(pin)) !== true) throw new EngineError('The lock was lost before it was granted.');
    return BigInt(said);
  }

  prove(pin: Pin): Promise<boolean | undefined> {
    return pin.proves('SELECT 1', [], this.#setup.withinMs);
  }

  async unlock(pin: Pin): Promise<void> {
    await pin.ask('ROLLBACK', [], this.#setup.withinMs);
  }

  #find({ weight }: Claim, patienceMs: number): string {
    const shared = this.#setup.mariadb ? 'LOCK IN SHARE MODE' : 'FOR SHARE';
    const mode = `${weight === ALL ? 'FOR UPDATE' : shared}${patienceMs === 0 ? ' NOWAIT' : ''}`;
    return `SELECT 1 FROM ${this.#setup.prefix}latch WHERE namespace = ? AND name = ? ${mode}`;
  }

  /**
   * Another may insert it at the same time and lock it at once; then an insert waits for that lock. MariaDB can do
   * without waiting, MySQL waits for a second.
   */
  async #insert(pin: Pin, key: readonly Value[]): Promise<void> {
    const { withinMs, mariadb, prefix } = this.#setup;
    await pin.ask('ROLLBACK', [], withinMs);
    const insert = `INSERT IGNORE INTO ${prefix}latch VALUES (?, ?, '', 0, ${NOW})`;
    const sql = mariadb ? `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ${insert}` : insert;
    try {
      await pin.ask(sql, key, withinMs + PATIENCE_MS);
    } catch (error) {
      if (!BUSY.has(errnoOf(error))) throw error;
    }
    await pin.ask('COMMIT', [], withinMs);
  }
}
