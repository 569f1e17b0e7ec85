/**
 * A register is one key, swapped by its mod revision (kit/swapped-registers.ts). A majority has it on disk before we hear
 * that it was written. What is kept for a time is under a lease of its own, which nobody keeps alive.
 */
import type { Kept, SeenText, SwappedTexts } from '../../kit/swapped-registers.js';
import type { EtcdClient } from './client/client.js';
import { IS, type KeyValue, TARGET } from './client/messages.js';
import { explained } from './errors.js';
import type { Keys } from './keys.js';
import { text } from './protocol.js';

const CALL_MS = 3_000;
/** The mod revision of a key that is not there. */
const NEVER = 0n;
/** The lease of a key that has none. */
const NONE = 0n;

type Version = Pick<KeyValue, 'modRevision' | 'lease'>;

export class RegisterKeys implements SwappedTexts<Version> {
  readonly #client: EtcdClient;
  readonly #keys: Keys;

  constructor(client: EtcdClient, keys: Keys) {
    this.#client = client;
    this.#keys = keys;
  }

  async look(name: string): Promise<SeenText<Version> | undefined> {
    const { kvs } = await explained(this.#client.range({ key: this.#key(name) }, { withinMs: CALL_MS }));
    const kv = kvs[0];
    return kv && { text: text(kv.value), version: kv };
  }

  async swap(name: string, seen: Version | undefined, json: string, kept: Kept): Promise<boolean> {
    const key = this.#key(name);
    const unchanged = { target: TARGET.mod, result: IS.equal, key, modRevision: seen?.modRevision ?? NEVER };
    const lease = kept === 'as before' ? (seen?.lease ?? NONE) : kept === 'for ever' ? NONE : await this.#lease(kept);
    const put = { key, value: Buffer.from(json), lease };
    // If it is carried out and its answer lost, the second one fails, and the register is read again.
    const calling = { withinMs: CALL_MS, repeatable: true };
    const { succeeded } = await explained(this.#client.txn({ compare: [unchanged], success: [{ put }] }, calling));
    return succeeded;
  }

  /** It counts from its grant, and the write may come as much later as a call may take. If that fails, it ends by itself. */
  async #lease(keepMs: number): Promise<bigint> {
    const seconds = BigInt(Math.ceil((keepMs + CALL_MS) / 1_000));
    return (await explained(this.#client.leaseGrant(seconds, { withinMs: CALL_MS }))).id;
  }

  #key(name: string): Buffer {
    return Buffer.from(this.#keys.register(name));
  }
}
