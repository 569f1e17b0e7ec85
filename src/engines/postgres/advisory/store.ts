/**
 * The `advisory` strategy: PostgreSQL's own session locks, on one connection for each session (link.ts), which also listens.
 *
 *     enter ─▶ take: pg_try_advisory_lock, mint the token ─▶ held        one round trip
 *                                                         └▶ busy: asks again when told that it was freed, or after a pause
 *
 * A lock's key is 64 bits of a hash of its name: two names with one key exclude each other needlessly, nothing worse. Lock
 * and token are had in one statement, and its answer came over the connection that holds the lock: that proves both.
 *
 * PostgreSQL counts how often a connection has a key, and never tells. So we have each key once: readers of one session
 * share it, and the last one frees it. A statement that was refused may have taken or freed its lock before that. Then the
 * key is nobody's, and all that the connection has of it is freed: at once, or with a later beat.
 *
 * What can go wrong: the server ends the connection (pg_terminate_backend, a restart) and grants to another at once, while
 * the news is still on its way to us.
 */
import { createHash } from 'node:crypto';
import type { Claim, ClaimRef, LineRef } from '../../../core/engine.js';
import type { Loss } from '../../../core/errors.js';
import { ALL } from '../../../core/line.js';
import type { HeldSlot, SlotStore, SlotWatch, Taken } from '../../../kit/slot-store.js';
import type { Database } from '../client/database.js';
import { lineId } from '../../../kit/line-id.js';
import { Link } from '../client/link.js';
import type { Names } from '../../../sql/postgres-names.js';
import type { PostgresRegisters } from '../registers.js';
import { answerOf, guarded } from '../settings.js';

/** How many beats there are between two cleanings. */
const CLEAN_EVERY = 10;

export interface AdvisoryStoreSetup {
  readonly database: Database;
  readonly names: Names;
  readonly namespace: string;
  readonly registers: PostgresRegisters;
  readonly ttlMs: number;
  lost(claimId: string, loss: Loss): void;
}

/** A key that the connection has, as far as we know. */
interface Held {
  readonly link: Link;
  readonly line: LineRef;
  shared: boolean;
  /** By claim. None: nobody wants it, and it is still to be freed. */
  readonly tokens: Map<string, bigint>;
  /** A statement about it was refused: nobody knows what the connection has of it. */
  doubtful: boolean;
}

export class AdvisoryStore implements SlotStore {
  /** Others are told by us when a lock is freed; who uses these locks without Holdfast tells nobody. */
  readonly pace = { firstMs: 100, mostMs: 1_000 };
  /** A take may wait for the connection, and what it has taken is known when it is answered. */
  readonly unordered = true;
  readonly #setup: AdvisoryStoreSetup;
  readonly #channel: string;
  readonly #held = new Map<string, Held>();
  /** What is asked about one key goes one after the other: it depends on what is held. */
  readonly #turns = new Map<string, Promise<unknown>>();
  /** By the key of those who wait. */
  readonly #watched = new Map<string, () => void>();
  #link: Promise<Link> | undefined;
  #keeps = 0;
  #closed = false;

  constructor(setup: AdvisoryStoreSetup) {
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

  take({ id, line, weight }: Claim): Promise<Taken> {
    const key = this.#key(line);
    const shared = weight < ALL;
    return this.#inTurn(key, async () => {
      const link = await this.connect();
      if (this.#held.get(key)?.tokens.size === 0) await this.#free(key);
      const held = this.#held.get(key);
      const known = held?.tokens.get(id);
      if (known !== undefined) return { token: known };
      if (held && !(held.shared && shared)) return { freeInMs: undefined };
      const token = await (held ? this.#mint(link, line) : this.#lock(link, line, shared));
      if (token === null || link.over) return { freeInMs: undefined };
      if (held) held.tokens.set(id, BigInt(token));
      else this.#held.set(key, { link, line, shared, tokens: new Map([[id, BigInt(token)]]), doubtful: false });
      return { token: BigInt(token) };
    });
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    await (await this.connect()).prove();
    for (const key of this.#held.keys()) this.#inTurn(key, () => this.#freeIfUnwanted(key)).catch(ignore);
    this.#keeps += 1;
    // What fails here the next one does.
    if (this.#keeps % CLEAN_EVERY === 0) this.#clean().catch(ignore);
    return slots.filter(({ id, line }) => !this.#held.get(this.#key(line))?.tokens.has(id)).map(({ id }) => id);
  }

  drop({ id, line }: ClaimRef): Promise<boolean> {
    const key = this.#key(line);
    return this.#inTurn(key, async () => {
      const stood = this.#held.get(key)?.tokens.delete(id) ?? false;
      return (await this.#freeIfUnwanted(key)) && stood;
    });
  }

  readonly lighten = ({ line }: Claim): Promise<void> => {
    const key = this.#key(line);
    return this.#inTurn(key, async () => {
      const held = this.#held.get(key);
      if (!held || held.shared) return;
      await this.#change(held, 'lighten', [key, this.#waitingKey(line), this.#channel]);
      held.shared = true;
    });
  };

  readonly watch = async (line: LineRef, freed: () => void): Promise<SlotWatch> => {
    const key = this.#waitingKey(line);
    const link = await this.connect();
    await link.query('SELECT pg_catalog.pg_advisory_lock_shared($1)', [key]);
    this.#watched.set(key, freed);
    return {
      close: async () => {
        this.#watched.delete(key);
        if (!link.over) await link.query('SELECT pg_catalog.pg_advisory_unlock_shared($1)', [key]);
      },
    };
  };

  async close(): Promise<void> {
    this.#closed = true;
    const link = await this.#link?.catch(() => undefined);
    await link?.close();
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

  #inTurn<T>(key: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(key) ?? Promise.resolve()).then(work);
    const over = turn.catch(ignore).finally(() => {
      if (this.#turns.get(key) === over) this.#turns.delete(key);
    });
    this.#turns.set(key, over);
    return turn;
  }

  async #lock(link: Link, line: LineRef, shared: boolean): Promise<string | null> {
    const key = this.#key(line);
    try {
      return await this.#call(link, 'take', [key, shared, this.#setup.namespace, tokenLine(line)]);
    } catch (error) {
      if (!link.over) {
        this.#held.set(key, { link, line, shared, tokens: new Map(), doubtful: true });
        await this.#free(key).catch(ignore);
      }
      throw error;
    }
  }

  /** The key is had already, and over the same connection: its answer proves that it still is. */
  #mint(link: Link, line: LineRef): Promise<string | null> {
    return this.#call(link, 'mint', [this.#setup.namespace, tokenLine(line)]);
  }

  /** True: it is had by others of ours, or it was had and is free. */
  async #freeIfUnwanted(key: string): Promise<boolean> {
    const held = this.#held.get(key);
    if (!held) return false;
    return held.tokens.size > 0 || this.#free(key);
  }

  async #free(key: string): Promise<boolean> {
    const held = this.#held.get(key)!;
    const rest = [this.#waitingKey(held.line), this.#channel];
    const freed = held.doubtful
      ? await this.#change(held, 'free', [key, ...rest])
      : await this.#change(held, 'drop', [key, held.shared, ...rest]);
    if (this.#held.get(key) === held) this.#held.delete(key);
    return freed === 't';
  }

  async #change(held: Held, routine: string, args: readonly unknown[]): Promise<string | null> {
    try {
      return await this.#call(held.link, routine, args);
    } catch (error) {
      held.doubtful = true;
      throw error;
    }
  }

  /** Those who wait go on: they only ask. */
  #lose(detail: string): void {
    this.#link = undefined;
    const lost = Array.from(this.#held.values(), ({ tokens }) => [...tokens.keys()]).flat();
    this.#held.clear();
    if (this.#closed) return;
    for (const id of lost) this.#setup.lost(id, { reason: 'connection', detail });
  }

  async #clean(): Promise<void> {
    const { database, names, namespace, registers } = this.#setup;
    await database.query(`SELECT ${names.of('clean')}($1)`, [namespace]);
    await registers.forget();
  }

  async #call(link: Link, routine: string, args: readonly unknown[]): Promise<string | null> {
    const places = args.map((_, at) => `$${at + 1}`).join(', ');
    return answerOf(await link.query(guarded(`${this.#setup.names.of(routine)}(${places})`), args));
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

/** Where its last token is kept. */
function tokenLine(line: LineRef): string {
  return `a${lineId(line)}`;
}

function ignore(): void {}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest().subarray(0, 8);
}
