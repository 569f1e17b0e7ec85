/**
 * The protocol. A lock is a key whose value is the claim that has it; memcached gives each version of a key a number (cas)
 * and can store and delete only if the version is still that one.
 *
 *     take    ms <key> ME T<ttl>     add: only if it is not there           ─▶ cas
 *             ma <token> N T J<µs>   a counter, started at our clock        ─▶ token
 *             ms <key> C<cas>        proof: it was ours when the token was made, and still is
 *     keep    ms <key> C<cas>
 *     drop    md <key> C<cas>
 *
 * All of it on one connection, whose order is kept: a take that we gave up is over before its drop. If a reply was lost we
 * don't know the version; then the value tells whether it is ours, and its version is read. A token that was made before
 * the lock was taken could be smaller than that of one who came between, hence the order.
 *
 * memcached counts whole seconds, and the last may be nearly over: N seconds may be N − 1.
 */
import type { Claim, ClaimRef } from '../../core/engine.js';
import { EngineError } from '../../core/errors.js';
import type { HeldSlot, SlotStore, Taken } from '../../core/slots.js';
import type { Clock } from '../../core/clock.js';
import type { Connection } from './connection.js';
import { lockKey, tokenKey } from './keys.js';
import { flag, type Reply } from './replies.js';

export interface MemcachedSlotsSetup {
  readonly connection: Connection;
  readonly namespace: string;
  readonly clock: Clock;
  readonly ttlMs: number;
}

/** A counter that nobody has used for so long starts again, at a clock that has gone on by as much. */
const TOKEN_MEMORY_S = 86_400;

export class MemcachedSlots implements SlotStore {
  readonly pace = { firstMs: 10, mostMs: 250 };
  readonly #setup: MemcachedSlotsSetup;
  readonly #seconds: number;
  /** The version of each claim's key, as far as we have heard. */
  readonly #versions = new Map<string, string>();
  /** Claims with a take that has no answer: what is there may be theirs. */
  readonly #unsure = new Set<string>();

  constructor(setup: MemcachedSlotsSetup) {
    this.#setup = setup;
    this.#seconds = Math.ceil(setup.ttlMs / 1_000) + 1;
  }

  async take(claim: Claim): Promise<Taken> {
    const { connection } = this.#setup;
    const key = this.#key(claim);
    const wasUnsure = this.#unsure.has(claim.id) || this.#versions.has(claim.id);
    const adding = connection.call(`ms ${key} ${claim.id.length} ME T${this.#seconds} c`, claim.id);
    // Sent along: it is carried out after the add, whether that succeeds or not; a token that nobody gets is no harm.
    const counting = this.#count();
    this.#unsure.add(claim.id);
    const [added, token] = await Promise.all([adding, counting]);
    if (added.code === 'HD') this.#versions.set(claim.id, version(added));
    else if (added.code !== 'NS') throw unexpected(added);
    const ours = (added.code === 'HD' || wasUnsure) && (await this.#store(claim));
    this.#unsure.delete(claim.id);
    return ours ? { token } : { freeInMs: undefined };
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const kept = await Promise.all(slots.map((slot) => this.#store(slot)));
    const lost = slots.filter((_, at) => !kept[at]).map(({ id }) => id);
    for (const id of lost) this.#versions.delete(id);
    return lost;
  }

  async drop(claim: ClaimRef): Promise<boolean> {
    const { connection } = this.#setup;
    const key = this.#key(claim);
    const dropped = await this.#versioned(claim, (cas) => connection.call(`md ${key} C${cas}`));
    this.#versions.delete(claim.id);
    this.#unsure.delete(claim.id);
    return dropped !== undefined;
  }

  async close(): Promise<void> {}

  /** Stores our claim over itself: renews it. False: it is not ours. */
  async #store(claim: ClaimRef): Promise<boolean> {
    const { connection } = this.#setup;
    const command = `ms ${this.#key(claim)} ${claim.id.length}`;
    const stored = await this.#versioned(claim, (cas) =>
      connection.call(`${command} C${cas} T${this.#seconds} c`, claim.id),
    );
    if (stored) this.#versions.set(claim.id, version(stored));
    return stored !== undefined;
  }

  /** Does it to the version that we know; if there is another, and it is ours, to that one. Undefined: it is not ours. */
  async #versioned(claim: ClaimRef, act: (cas: string) => Promise<Reply>): Promise<Reply | undefined> {
    const known = this.#versions.get(claim.id);
    if (known !== undefined) {
      const reply = await act(known);
      if (reply.code === 'HD') return reply;
      if (reply.code === 'NF') return undefined;
      if (reply.code !== 'EX') throw unexpected(reply);
    }
    const found = await this.#setup.connection.call(`mg ${this.#key(claim)} v c`);
    if (found.code === 'EN') return undefined;
    if (found.code !== 'VA') throw unexpected(found);
    if (found.value !== claim.id) return undefined;
    const reply = await act(version(found));
    if (reply.code === 'HD') return reply;
    if (reply.code === 'NF' || reply.code === 'EX') return undefined;
    throw unexpected(reply);
  }

  async #count(): Promise<bigint> {
    const { connection, namespace, clock } = this.#setup;
    const startUs = Math.floor(clock.wall() * 1_000);
    const key = tokenKey(namespace);
    const reply = await connection.call(`ma ${key} N${TOKEN_MEMORY_S} T${TOKEN_MEMORY_S} J${startUs} v`);
    if (reply.code !== 'VA' || !/^\d{1,19}$/.test(reply.value ?? '')) throw unexpected(reply);
    return BigInt(reply.value!);
  }

  #key({ line }: ClaimRef): string {
    return lockKey(this.#setup.namespace, line.name);
  }
}

function version(reply: Reply): string {
  const cas = flag(reply, 'c');
  if (cas === undefined || !/^\d{1,20}$/.test(cas)) throw unexpected(reply);
  return cas;
}

function unexpected({ code, flags }: Reply): EngineError {
  return new EngineError(`memcached answered what it should not: ${[code, ...flags].join(' ')}.`);
}
