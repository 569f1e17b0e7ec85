/**
 * The protocol. A lock is a key whose value is the claim that has it; memcached gives each version of a key a number (cas)
 * and can store and delete only if the version is still that one.
 *
 *     take    ms <key> ME T<ttl>     add: only if it is not there           ─▶ cas
 *             ma <token> N T J<µs>   a counter, started at our clock        ─▶ token
 *             mg <key>               proof: still the same version, so it was ours when the token was made
 *     keep    ms <key> C<cas>
 *     drop    md <key> C<cas>
 *
 * A take is one packet. All of it goes over one connection, whose order is kept: a take that we gave up is over before its
 * drop, and a token is made between add and proof. A token that was made before the lock was taken could be smaller than
 * that of one who came between.
 *
 * If a reply was lost we don't know the version; then the value tells whether the lock is ours, and its version is read. The
 * same after a new connection: a server that was restarted counts its versions from 1, and the number that was ours may be
 * another's now. A command of the old connection may still be carried out, after those of the new one: it changes our
 * version once more, or adds what we gave up, which then runs out.
 *
 * memcached counts whole seconds, and the last may be nearly over: N seconds may be N − 1.
 */
import { orStranger } from '../../kit/stranger.js';
import type { Claim, ClaimRef } from '../../core/engine.js';
import { EngineError } from '../../core/errors.js';
import { foreignBigint } from '../../kit/foreign-json.js';
import type { HeldSlot, SlotStore, Taken } from '../../kit/slot-store.js';
import type { Clock } from '../../core/clock.js';
import type { Connection } from './client/connection.js';
import { lockKey, tokenKey } from './keys.js';
import { flag, type Reply } from './client/replies.js';

export interface MemcachedSlotsSetup {
  readonly connection: Connection;
  readonly namespace: string;
  readonly clock: Clock;
  readonly ttlMs: number;
}

/** A counter that nobody has used for so long starts again, at a clock that has gone on by as much. */
const TOKEN_MEMORY_S = 86_400;

/** A counter begins at a clock: none is below this, the year 2001 in microseconds, ... */
const LEAST_TOKEN = 1_000_000_000_000_000n;
/** ... nor above this: a user's token is a thousand times as large, and has 64 bits with a sign. That is the year 2255. */
const LARGEST_TOKEN = 2n ** 53n - 1n;

/** Only commands of our own that come late change what is ours, and there are few of them. */
const MOST_TRIES = 5;

/** A number that memcached gave, and the link on which we heard it. */
interface Version {
  readonly cas: string;
  readonly link: number;
}

export class MemcachedSlots implements SlotStore {
  readonly pace = { firstMs: 10, mostMs: 250 };
  readonly #setup: MemcachedSlotsSetup;
  readonly #seconds: number;
  readonly #tokenKey: string;
  /** The version of each claim's key, as far as we have heard. */
  readonly #versions = new Map<string, Version>();
  /** Claims with a take that has no answer: what is there may be theirs, now or later. */
  readonly #unsure = new Set<string>();
  /** The largest token that we have heard of: no later one is smaller. */
  #newest = LEAST_TOKEN;

  constructor(setup: MemcachedSlotsSetup) {
    this.#setup = setup;
    this.#tokenKey = tokenKey(setup.namespace);
    this.#seconds = Math.ceil(setup.ttlMs / 1_000) + 1;
  }

  async take(claim: Claim): Promise<Taken> {
    const wasUnsure = this.#unsure.has(claim.id);
    this.#unsure.add(claim.id);
    try {
      const token = (await this.#add(claim)) ?? (wasUnsure ? await this.#find(claim) : undefined);
      // While it is asked for again, what was asked before may still come.
      if (!wasUnsure || !claim.wait || token !== undefined) this.#unsure.delete(claim.id);
      return token === undefined ? { freeInMs: undefined } : { token };
    } catch (error) {
      // Another take of the same claim may have been sure in the meantime, of its own answer.
      this.#unsure.add(claim.id);
      throw error;
    }
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const kept = await Promise.all(slots.map((slot) => this.#renew(slot)));
    const lost = slots.filter((_, at) => !kept[at]).map(({ id }) => id);
    for (const id of lost) this.#versions.delete(id);
    return lost;
  }

  async drop(claim: ClaimRef): Promise<boolean> {
    const { connection } = this.#setup;
    const command = `md ${this.#key(claim)}`;
    const dropped = await this.#versioned(claim, ({ cas, link }) =>
      connection.call(`${command} C${cas}`, { on: link }),
    );
    this.#versions.delete(claim.id);
    this.#unsure.delete(claim.id);
    return dropped !== undefined;
  }

  async close(): Promise<void> {}

  /** The token, if it was free. */
  async #add(claim: Claim): Promise<bigint | undefined> {
    const { connection } = this.#setup;
    const { link } = connection;
    const key = this.#key(claim);
    // The others are carried out whether the add succeeds or not; a token that nobody gets is no harm.
    const adding = connection.call(`ms ${key} ${claim.id.length} ME T${this.#seconds} c`, { value: claim.id });
    const counting = this.#count();
    counting.catch(() => {});
    const [added, proof] = await Promise.all([adding, connection.call(`mg ${key} c`)]);
    if (added.code === 'NS') return undefined;
    if (added.code !== 'HD') throw unexpected(added);
    const cas = versionIn(added);
    if (proof.code === 'EN' || (proof.code === 'HD' && versionIn(proof) !== cas)) return undefined;
    if (proof.code !== 'HD') throw unexpected(proof);
    this.#versions.set(claim.id, { cas, link });
    return this.#orDrop(claim, counting);
  }

  /** A lock without a token is nobody's. It would run out by itself, but until then it is in everybody's way. */
  async #orDrop(claim: Claim, counting: Promise<bigint>): Promise<bigint> {
    try {
      return await counting;
    } catch (error) {
      await this.drop(claim).catch(() => {});
      throw error;
    }
  }

  /** A token for what an earlier add may have taken: made after we have seen that it is ours, and proven by a renewal. */
  async #find(claim: Claim): Promise<bigint | undefined> {
    const version = await this.#look(claim);
    if (!version) return undefined;
    const [token, stored] = await Promise.all([this.#count(), this.#store(claim, version)]);
    if (stored.code === 'EX' || stored.code === 'NF') return undefined;
    if (stored.code !== 'HD') throw unexpected(stored);
    this.#versions.set(claim.id, { cas: versionIn(stored), link: version.link });
    return token;
  }

  /** False: it is not ours. */
  async #renew(claim: ClaimRef): Promise<boolean> {
    let link = 0;
    const stored = await this.#versioned(claim, (version) => {
      link = version.link;
      return this.#store(claim, version);
    });
    if (stored) this.#versions.set(claim.id, { cas: versionIn(stored), link });
    return stored !== undefined;
  }

  /** Stores our claim over itself. */
  #store(claim: ClaimRef, { cas, link }: Version): Promise<Reply> {
    const command = `ms ${this.#key(claim)} ${claim.id.length} C${cas} T${this.#seconds} c`;
    return this.#setup.connection.call(command, { value: claim.id, on: link });
  }

  /** Does it to the version that we know; if there is another, and it is ours, to that one. Undefined: it is not ours. */
  async #versioned(claim: ClaimRef, act: (version: Version) => Promise<Reply>): Promise<Reply | undefined> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const version = this.#known(claim) ?? (await this.#look(claim));
      if (!version) return undefined;
      const reply = await act(version);
      if (reply.code === 'HD') return reply;
      if (reply.code === 'NF') return undefined;
      if (reply.code !== 'EX') throw unexpected(reply);
      this.#versions.delete(claim.id);
    }
    throw new EngineError('memcached has another version of the same lock at every look.');
  }

  #known({ id }: ClaimRef): Version | undefined {
    const version = this.#versions.get(id);
    return version?.link === this.#setup.connection.link ? version : undefined;
  }

  /** The version that is there, if it is ours. */
  async #look(claim: ClaimRef): Promise<Version | undefined> {
    const { connection } = this.#setup;
    const { link } = connection;
    const found = await connection.call(`mg ${this.#key(claim)} v c`);
    if (found.code === 'EN') return undefined;
    if (found.code !== 'VA') throw unexpected(found);
    return found.value === claim.id ? { cas: versionIn(found), link } : undefined;
  }

  async #count(): Promise<bigint> {
    const { connection, clock } = this.#setup;
    const startUs = Math.max(Math.floor(clock.wall() * 1_000), Number(this.#newest) + 1);
    const command = `ma ${this.#tokenKey} N${TOKEN_MEMORY_S} T${TOKEN_MEMORY_S} J${startUs} v`;
    const reply = await connection.call(command, { noNumber: this.#overwritten('no number') });
    if (reply.code !== 'VA') throw unexpected(reply);
    const token = foreignBigint(reply.value);
    if (token === undefined || token < LEAST_TOKEN || token > LARGEST_TOKEN)
      throw this.#overwritten('no token of ours');
    if (token <= this.#newest) throw this.#overwritten('less than it did');
    this.#newest = token;
    return token;
  }

  /** A smaller token would let a stale writer pass: so there is none, until somebody has looked. */
  #overwritten(what: string): EngineError {
    return new EngineError(
      `memcached: the key ${this.#tokenKey}, which counts tokens, holds ${what}. Find out who wrote it, and delete it.`,
      { retryable: false },
    );
  }

  #key({ line }: ClaimRef): string {
    return lockKey(this.#setup.namespace, line.name);
  }
}

function versionIn(reply: Reply): string {
  const cas = flag(reply, 'c');
  if (cas === undefined || !/^\d{1,20}$/.test(cas)) throw unexpected(reply);
  return cas;
}

function unexpected({ code, flags }: Reply): EngineError {
  return new EngineError(
    `memcached answered what it should not: ${[code, ...flags].join(' ')}. ${orStranger('memcached')}`,
  );
}
