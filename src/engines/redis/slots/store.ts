/** Slots in one Redis: a key per lock, three scripts, and a channel to be woken by. */
import type { Claim, ClaimRef, LineRef } from '../../../core/engine.js';
import { EngineError } from '../../../core/errors.js';
import type { KeyOf } from '../../../kit/encoded-name.js';
import type { HeldSlot, Pace, SlotStore, SlotWatch, Taken } from '../../../kit/slot-store.js';
import { chunks } from '../chunks.js';
import type { RedisPort, Script } from '../client/port.js';
import { TOKEN_MEMORY_MS, tokenKey } from './keys.js';
import type { SlotWatches } from './watches.js';

/** How a strategy lays a lock out. */
export interface SlotProtocol {
  readonly take: Script;
  readonly keep: Script;
  readonly drop: Script;
  ownerOf(claimId: string): string;
  /** Undefined: such a key can't have one. */
  channelOf(key: string): string | undefined;
  readonly pace: Pace;
  /** What it may mean that a key has another type. */
  readonly otherKind: string;
}

export interface RedisSlotsSetup {
  readonly port: RedisPort;
  readonly protocol: SlotProtocol;
  readonly keyOf: KeyOf;
  readonly watches: SlotWatches;
  readonly ttlMs: number;
}

/** More keys in one call would keep other clients of the server waiting. */
export const KEYS_PER_CALL = 100;

export class RedisSlots implements SlotStore {
  readonly pace: Pace;
  readonly #setup: RedisSlotsSetup;

  constructor(setup: RedisSlotsSetup) {
    this.#setup = setup;
    this.pace = setup.protocol.pace;
  }

  async take({ id, line }: Claim): Promise<Taken> {
    const { protocol, keyOf, ttlMs } = this.#setup;
    const key = keyOf(line.name);
    const memory = tokenKey(key);
    const keys = memory === undefined ? [key] : [key, memory];
    const answer = await this.#run(protocol.take, keys, [protocol.ownerOf(id), ttlMs, TOKEN_MEMORY_MS]);
    const [taken, rest] = answer as unknown[];
    if (Number(taken) === 1) return { token: BigInt(String(rest)) };
    const freeInMs = Number(rest);
    return { freeInMs: freeInMs < 0 ? undefined : freeInMs };
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const { port, protocol, keyOf, ttlMs } = this.#setup;
    port.checkSubscriber();
    // Keys of a cluster live on different nodes.
    const batches = chunks(slots, port.cluster ? 1 : KEYS_PER_CALL);
    const answers = await Promise.all(
      batches.map((batch) => {
        const owners = batch.map(({ id }) => protocol.ownerOf(id));
        const keys = batch.map(({ line }) => keyOf(line.name));
        return this.#run(protocol.keep, keys, [ttlMs, ...owners]) as Promise<unknown[]>;
      }),
    );
    const kept = answers.flat();
    return slots.filter((_, at) => Number(kept[at]) !== 1).map(({ id }) => id);
  }

  async drop({ id, line }: ClaimRef): Promise<boolean> {
    const { port, protocol, keyOf } = this.#setup;
    const key = keyOf(line.name);
    const words = [protocol.ownerOf(id), protocol.channelOf(key) ?? '', port.cluster ? 1 : 0];
    return Number(await this.#run(protocol.drop, [key], words)) === 1;
  }

  readonly watch = async (line: LineRef, freed: () => void): Promise<SlotWatch> => {
    const { protocol, keyOf, watches } = this.#setup;
    const channel = protocol.channelOf(keyOf(line.name));
    return channel === undefined ? NO_WATCH : watches.watch(channel, freed);
  };

  async close(): Promise<void> {}

  async #run(script: Script, keys: readonly string[], words: readonly (string | number)[]): Promise<unknown> {
    try {
      return await this.#setup.port.run(script, keys, words.map(String));
    } catch (error) {
      if (!(error instanceof Error && error.message.includes('WRONGTYPE'))) throw error;
      const problem = `The key ${keys[0]} can't be used as a lock. ${this.#setup.protocol.otherKind}`;
      throw new EngineError(problem, { cause: error, retryable: false });
    }
  }
}

const NO_WATCH: SlotWatch = { close: async () => {} };
