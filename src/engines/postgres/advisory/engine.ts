/**
 * The `advisory` strategy: PostgreSQL's own session locks, on one connection for each session (link.ts), which also listens.
 *
 *     enter ─▶ take: pg_try_advisory_lock, mint the token ─▶ held        one round trip
 *                                                         └▶ busy: asks again when told that it was freed, or after a pause
 *
 * A lock's key is 64 bits of a hash of its name: two names with one key exclude each other needlessly, nothing worse. Lock
 * and token are had in one statement, and its answer came over the connection that holds the lock: that proves both.
 *
 * What can go wrong: the server ends the connection (pg_terminate_backend, a restart) and grants to another at once, while
 * the news is still on its way to us.
 */
import { createHash } from 'node:crypto';
import type { Clock } from '../../../core/clock.js';
import type {
  Claim,
  ClaimRef,
  Engine,
  EngineSetup,
  LineRef,
  OpenOptions,
  Session,
  SessionListener,
} from '../../../core/engine.js';
import type { Loss } from '../../../core/errors.js';
import { ALL } from '../../../core/line.js';
import { type HeldSlot, SlotSession, type SlotStore, type Taken, type Watch } from '../../../kit/slot-session.js';
import type { Database } from '../client/database.js';
import { lineId } from '../../../kit/line-id.js';
import { Link } from '../client/link.js';
import type { Names } from '../../../sql/postgres-names.js';
import { PostgresRegisters } from '../registers.js';

/** How many beats there are between two cleanings. */
const CLEAN_EVERY = 10;

export class AdvisoryEngine implements Engine {
  readonly registers: PostgresRegisters;
  readonly #setup: Omit<StoreSetup, 'ttlMs' | 'lost'>;
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
    return session;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#setup.database.close();
  }
}

interface StoreSetup {
  readonly database: Database;
  readonly names: Names;
  readonly namespace: string;
  readonly registers: PostgresRegisters;
  readonly ttlMs: number;
  lost(claimId: string, loss: Loss): void;
}

/** What a claim has on a connection. */
interface Slot {
  readonly link: Link;
  readonly key: string;
  readonly token: bigint;
  shared: boolean;
}

class AdvisoryStore implements SlotStore {
  /** Others are told by us when a lock is freed; who uses these locks without Holdfast tells nobody. */
  readonly pace = { firstMs: 100, mostMs: 1_000 };
  readonly #setup: StoreSetup;
  readonly #channel: string;
  readonly #slots = new Map<string, Slot>();
  /** Under way, by claim: a second question about the same claim gets the same answer. */
  readonly #takes = new Map<string, Promise<Taken>>();
  /** By the key of those who wait. */
  readonly #watched = new Map<string, () => void>();
  #link: Promise<Link> | undefined;
  #keeps = 0;
  #closed = false;

  constructor(setup: StoreSetup) {
    this.#setup = setup;
    this.#channel = `holdfast_${hash(`${setup.names.of('')} ${setup.namespace}`).toString('hex')}`;
  }

  connect(): Promise<Link> {
    this.#link ??= this.#open().catch((error: unknown) => {
      this.#link = undefined;
      throw error;
    });
    return this.#link;
  }

  take(claim: Claim): Promise<Taken> {
    const under = this.#takes.get(claim.id);
    if (under) return under;
    const taking = this.#take(claim).finally(() => this.#takes.delete(claim.id));
    this.#takes.set(claim.id, taking);
    return taking;
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    await (await this.connect()).query('SELECT 1');
    this.#keeps += 1;
    if (this.#keeps % CLEAN_EVERY === 0) {
      this.#clean().catch(() => {
        // The next one does it.
      });
    }
    return slots.filter(({ id }) => !this.#slots.has(id)).map(({ id }) => id);
  }

  async drop({ id, line }: ClaimRef): Promise<boolean> {
    // Whatever it takes at this moment has to be dropped, too.
    await this.#takes.get(id)?.catch(() => {});
    const slot = this.#slots.get(id);
    if (!slot) return false;
    this.#slots.delete(id);
    const [row] = await slot.link.query(this.#call('drop', 4), [
      slot.key,
      slot.shared,
      this.#waitingKey(line),
      this.#channel,
    ]);
    return row![0] === 't';
  }

  readonly lighten = async ({ id, line }: Claim): Promise<void> => {
    const slot = this.#slots.get(id);
    if (!slot || slot.shared) return;
    await slot.link.query(this.#call('lighten', 3), [slot.key, this.#waitingKey(line), this.#channel]);
    slot.shared = true;
  };

  readonly watch = async (line: LineRef, freed: () => void): Promise<Watch> => {
    const key = this.#waitingKey(line);
    const link = await this.connect();
    await link.query('SELECT pg_advisory_lock_shared($1)', [key]);
    this.#watched.set(key, freed);
    return {
      close: async () => {
        this.#watched.delete(key);
        if (!link.over) await link.query('SELECT pg_advisory_unlock_shared($1)', [key]);
      },
    };
  };

  async close(): Promise<void> {
    this.#closed = true;
    const link = await this.#link?.catch(() => undefined);
    await link?.close();
  }

  async #take({ id, line, weight }: Claim): Promise<Taken> {
    const known = this.#slots.get(id);
    if (known) return { token: known.token };
    const link = await this.connect();
    const key = this.#key(line);
    const shared = weight < ALL;
    let row;
    try {
      [row] = await link.query(this.#call('take', 4), [key, shared, this.#setup.namespace, `a${lineId(line)}`]);
    } catch (error) {
      // A lock is not undone with the statement that took it.
      if (!link.over)
        await link.query(`SELECT pg_advisory_unlock${shared ? '_shared' : ''}($1)`, [key]).catch(() => {});
      throw error;
    }
    const token = row?.[0] ?? null;
    if (token === null || link.over) return { freeInMs: undefined };
    this.#slots.set(id, { link, key, shared, token: BigInt(token) });
    return { token: BigInt(token) };
  }

  #open(): Promise<Link> {
    const { database, ttlMs } = this.#setup;
    return Link.open({
      database,
      ttlMs,
      channel: this.#channel,
      message: (key) => this.#watched.get(key)?.(),
      lost: (detail) => this.#lose(detail),
    });
  }

  /** Those who wait go on: they only ask. */
  #lose(detail: string): void {
    this.#link = undefined;
    const lost = [...this.#slots.keys()];
    this.#slots.clear();
    if (this.#closed) return;
    for (const id of lost) this.#setup.lost(id, { reason: 'connection', detail });
  }

  async #clean(): Promise<void> {
    const { database, names, namespace, registers } = this.#setup;
    await database.query(`SELECT ${names.of('clean')}($1)`, [namespace]);
    await registers.forget();
  }

  #call(routine: string, count: number): string {
    const args = Array.from({ length: count }, (_, at) => `$${at + 1}`).join(', ');
    return `SELECT ${this.#setup.names.of(routine)}(${args})`;
  }

  #key(line: LineRef): string {
    return hash(`${this.#setup.namespace}\u001f${lineId(line)}`)
      .readBigInt64BE()
      .toString();
  }

  #waitingKey(line: LineRef): string {
    return hash(`${this.#setup.namespace}\u001f${lineId(line)}\u001fwaiting`)
      .readBigInt64BE()
      .toString();
  }
}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest().subarray(0, 8);
}
