/**
 * Slots on several servers, each of them held by whoever has it on more than half.
 *
 *     take ──▶ every node: this claim, this token? ──▶ more than half say yes ──▶ held; the others' answers don't matter
 *                        └▶ too few ──▶ freed everywhere, asked again after a random pause
 *
 * A beat renews on all nodes; only renewals count, and what was set anew on a node that had forgotten it only repairs it.
 */
import type { Claim, ClaimRef, Guard, LineRef } from '../../../core/engine.js';
import { EngineError } from '../../../core/errors.js';
import type { KeyOf } from '../../../kit/encoded-name.js';
import type { HeldSlot, SlotStore, SlotWatch, Taken } from '../../../kit/slot-store.js';
import { chunks } from '../chunks.js';
import type { RedisPort } from '../client/port.js';
import { GUARD_REMEDY, guardWord } from '../epoch-guard.js';
import { KEYS_PER_CALL } from '../slots/store.js';
import { MISSED, type SlotWatches } from '../slots/watches.js';
import { HeardOf } from './heard-of.js';
import { ballotKey, ballotChannel } from './keys.js';
import { type NodeTime, rememberMs, toleranceMs } from './node-time.js';
import { EXTEND, FREE, VOTE } from './protocol.js';
import { enough, type Quorum, type Tally } from './quorum.js';

export interface RedlockStoreSetup {
  readonly quorum: Quorum;
  /** One for each node. */
  readonly watches: readonly SlotWatches[];
  readonly time: NodeTime;
  readonly keyOf: KeyOf;
  /** For how long a node that has just started stays out at least; undefined: it takes part at once. */
  readonly leastGuardMs: number | undefined;
  readonly ttlMs: number;
}

/** What one node says to a proposal; see protocol.ts. */
interface Vote {
  readonly what: 'yes' | 'busy' | 'young' | 'low' | 'clock';
  readonly number: number;
  /** What its clock is ahead of ours (µs). */
  readonly aheadUs: number;
}

/** A first proposal, one that has learned the nodes' clock, one that has learned their highest token. */
const ROUNDS = 3;

export class RedlockStore implements SlotStore {
  readonly pace = { firstMs: 10, mostMs: 200 };
  readonly #setup: RedlockStoreSetup;
  readonly #quorum: Quorum;
  /** So many nodes decide against us. */
  readonly #veto: number;
  /** Tries under way, by claim. */
  readonly #taking = new Map<string, Promise<Taken | undefined>>();
  /** Beats under way. A node that does not know the script hears of one twice: what is freed in between would be set again. */
  readonly #beating = new Map<RedisPort, Promise<unknown>>();

  constructor(setup: RedlockStoreSetup) {
    this.#setup = setup;
    this.#quorum = setup.quorum;
    this.#veto = setup.quorum.nodes.length - setup.quorum.size + 1;
  }

  /** One try after the other: what a try that fails gives back may be what another of the same claim has just got. */
  async take(claim: Claim): Promise<Taken> {
    const before = this.#taking.get(claim.id);
    const taking = before
      ? before.then((taken) => (taken?.token === undefined ? this.#take(claim) : taken))
      : this.#take(claim);
    const settled = taking.catch(() => undefined);
    this.#taking.set(claim.id, settled);
    try {
      return await taking;
    } finally {
      if (this.#taking.get(claim.id) === settled) this.#taking.delete(claim.id);
    }
  }

  async #take(claim: Claim): Promise<Taken> {
    const { time, ttlMs } = this.#setup;
    let floor = 0;
    for (let round = 1; ; round += 1) {
      const token = time.propose(floor);
      const { answers: votes, silent, lastError } = await this.#vote(claim, token);
      const accepted = votes.filter(({ what }) => what === 'yes').length;
      if (accepted >= this.#quorum.size) return { token: BigInt(token) };
      time.heard(
        votes.map(({ aheadUs }) => aheadUs),
        ttlMs,
      );
      // Another token helps where nodes refused this one; not where others hold the lock, or too few answer.
      const unsuitable = votes.filter(({ what }) => what === 'low' || what === 'clock');
      if (unsuitable.length > 0 && silent < this.#veto && round < ROUNDS) {
        floor = Math.max(...unsuitable.map(({ number }) => number)) + 1;
        continue;
      }
      // Nobody waits for it: it takes nothing from a try that comes after.
      void this.#free(claim, `${token}`).catch(runsOut);
      if (silent >= this.#veto) throw this.#quorum.unreachable(silent, lastError);
      if (votes.filter(({ what }) => what === 'clock').length >= this.#veto) throw clocksDisagree();
      return { freeInMs: accepted > 0 ? 0 : this.#freeInMs(votes), guard: this.#guardOf(votes, accepted) };
    }
  }

  #vote({ id, line }: Claim, token: number): Promise<Tally<Vote>> {
    const { time, leastGuardMs, ttlMs } = this.#setup;
    const keys = this.#keys(line);
    const words = [id, token, ttlMs, toleranceMs(ttlMs) * 1_000, rememberMs(ttlMs), guardWord(leastGuardMs)].map(
      String,
    );
    return this.#quorum.ask(
      async (node) => {
        const [what, number, nodeUs] = ((await node.run(VOTE, keys, words)) as unknown[]).map(String);
        return { what: what as Vote['what'], number: Number(number), aheadUs: time.ahead(Number(nodeUs)) };
      },
      ({ answers, open }) => {
        const accepted = answers.filter(({ what }) => what === 'yes').length;
        return accepted >= this.#quorum.size || accepted + open < this.#quorum.size;
      },
    );
  }

  /** When so many nodes are free that they are more than half, if nobody renews. */
  #freeInMs(votes: readonly Vote[]): number | undefined {
    const waits = votes.filter(({ what }) => what === 'busy' || what === 'young').map(({ number }) => number);
    // Taken without an end: -1.
    const ends = waits.map((ms) => (ms < 0 ? Number.POSITIVE_INFINITY : ms)).sort((one, other) => one - other);
    return ends.at(-this.#veto);
  }

  /** Where those that have just started would be enough for us: until so many of them take part. */
  #guardOf(votes: readonly Vote[], accepted: number): Guard | undefined {
    const young = votes.filter(({ what }) => what === 'young').map(({ number }) => number);
    const endsInMs = young.sort((one, other) => one - other)[this.#quorum.size - accepted - 1];
    if (endsInMs === undefined) return undefined;
    const { leastGuardMs = 0, ttlMs } = this.#setup;
    return { endsInMs, ageMs: Math.max(leastGuardMs, ttlMs) - endsInMs, remedy: GUARD_REMEDY };
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const { ttlMs } = this.#setup;
    const batches = chunks(slots, KEYS_PER_CALL);
    // For each slot on how many nodes it was renewed, and on how many it was not ours any more.
    const renewed = slots.map(() => 0);
    const missing = slots.map(() => 0);
    const { silent, lastError } = await this.#quorum.ask(
      async (node) => {
        const asked = Promise.all(
          batches.map((batch) => {
            const keys = batch.flatMap(({ line }) => this.#keys(line));
            const words = batch.flatMap(({ id, token }) => [id, `${token}`]);
            return node.run(EXTEND, keys, [`${ttlMs}`, `${rememberMs(ttlMs)}`, ...words]) as Promise<unknown[]>;
          }),
        );
        this.#beats(node, asked);
        const answers = await asked;
        for (const [at, answer] of answers.flat().entries()) (Number(answer) === 1 ? renewed : missing)[at]! += 1;
      },
      () => renewed.every((count) => count >= this.#quorum.size),
    );
    const isLost = (at: number): boolean => missing[at]! >= this.#veto;
    if (renewed.some((count, at) => count < this.#quorum.size && !isLost(at)))
      throw this.#quorum.unreachable(silent, lastError);
    return slots.filter((_, at) => isLost(at)).map(({ id }) => id);
  }

  #beats(node: RedisPort, asked: Promise<unknown>): void {
    const beating = Promise.allSettled([this.#beating.get(node), asked]).then(() => {
      if (this.#beating.get(node) === beating) this.#beating.delete(node);
    });
    this.#beating.set(node, beating);
  }

  drop(claim: ClaimRef): Promise<boolean> {
    return this.#free(claim, '');
  }

  async #free({ id, line }: ClaimRef, highestToken: string): Promise<boolean> {
    const key = this.#setup.keyOf(line.name);
    const { answers, silent, lastError } = await this.#quorum.ask(
      async (node) => {
        await this.#beating.get(node);
        return Number(await node.run(FREE, [key], [id, ballotChannel(key), highestToken]));
      },
      ({ answers }) => sum(answers) >= this.#quorum.size || answers.length - sum(answers) >= this.#veto,
    );
    if (sum(answers) >= this.#quorum.size) return true;
    if (answers.length - sum(answers) >= this.#veto) return false;
    throw this.#quorum.unreachable(silent, lastError);
  }

  /** Woken when more than half of the nodes have said that one claim is gone: then the lock can be taken. */
  readonly watch = async (line: LineRef, freed: () => void): Promise<SlotWatch> => {
    const { watches, keyOf } = this.#setup;
    const channel = ballotChannel(keyOf(line.name));
    const heardOf = new HeardOf(this.#quorum.size);
    const heard = (claim: string): void => {
      if (claim === MISSED || heardOf.again(claim)) freed();
    };
    const opening = watches.map((node) => node.watch(channel, heard));
    await enough(opening, this.#quorum.size);
    return {
      close: async () => {
        for (const watch of await Promise.allSettled(opening))
          if (watch.status === 'fulfilled') await watch.value.close();
      },
    };
  };

  async close(): Promise<void> {}

  #keys({ name }: LineRef): string[] {
    const key = this.#setup.keyOf(name);
    return [key, ballotKey(key)];
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function clocksDisagree(): EngineError {
  return new EngineError(
    "The clock of this machine and those of the nodes differ by more than a quarter of the ttl. If it stays so, the nodes' " +
      'clocks are believed after one ttl; until then no lock is granted here. Set the clocks.',
  );
}

/** Where we could not say that we gave it up it runs out. */
function runsOut(): void {}
