/**
 * A register is one key, swapped by its mod revision (kit/swapped-registers.ts). A majority has it on disk before we hear
 * that it was written.
 */
import type { SeenText, SwappedTexts } from '../../kit/swapped-registers.js';
import type { EtcdClient } from './client/client.js';
import { IS, TARGET } from './client/messages.js';
import { explained } from './explain.js';
import type { Keys } from './keys.js';
import { text } from './lines.js';

const CALL_MS = 3_000;
/** The mod revision of a key that is not there. */
const NEVER = 0n;

export class RegisterKeys implements SwappedTexts<bigint> {
  readonly #client: EtcdClient;
  readonly #keys: Keys;

  constructor(client: EtcdClient, keys: Keys) {
    this.#client = client;
    this.#keys = keys;
  }

  async look(name: string): Promise<SeenText<bigint> | undefined> {
    const { kvs } = await explained(this.#client.range({ key: this.#key(name) }, { withinMs: CALL_MS }));
    const kv = kvs[0];
    return kv && { text: text(kv.value), version: kv.modRevision };
  }

  async swap(name: string, seen: bigint | undefined, json: string): Promise<boolean> {
    const key = this.#key(name);
    const unchanged = { target: TARGET.mod, result: IS.equal, key, modRevision: seen ?? NEVER };
    const put = { key, value: Buffer.from(json) };
    // If it is carried out and its answer lost, the second one fails, and the register is read again.
    const calling = { withinMs: CALL_MS, repeatable: true };
    const { succeeded } = await explained(this.#client.txn({ compare: [unchanged], success: [{ put }] }, calling));
    return succeeded;
  }

  #key(name: string): Buffer {
    return Buffer.from(this.#keys.register(name));
  }
}
