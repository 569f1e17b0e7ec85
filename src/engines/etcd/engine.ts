import type { Clock } from '../../core/clock.js';
import type {
  Engine,
  EngineLine,
  LineQuery,
  OpenOptions,
  Registers,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { SwappedRegisters } from '../../kit/swapped-registers.js';
import type { EtcdClient } from './client/client.js';
import { IS, TARGET } from './client/messages.js';
import { explained } from './errors.js';
import type { Keys } from './keys.js';
import { findClaim, listLines } from './listing.js';
import { RegisterKeys } from './registers.js';
import { openSession } from './session.js';

const EVICT_MS = 5_000;

export class EtcdEngine implements Engine {
  readonly registers: Registers;
  readonly #client: EtcdClient;
  readonly #keys: Keys;
  readonly #clock: Clock;

  constructor(client: EtcdClient, keys: Keys, clock: Clock) {
    this.#client = client;
    this.#keys = keys;
    this.#clock = clock;
    this.registers = new SwappedRegisters(new RegisterKeys(client, keys), clock);
  }

  open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const setup = { client: this.#client, keys: this.#keys, clock: this.#clock, listener };
    return explained(openSession(setup, options));
  }

  inspect(query: LineQuery): AsyncIterable<EngineLine> {
    return listLines(this.#client, this.#keys, query);
  }

  /** The message is under the claim's own lease, so it goes with it. */
  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const found = await findClaim(this.#client, this.#keys, name, claimId);
    if (!found) return false;
    const { key, lease, createRevision } = found.kv;
    const stands = { target: TARGET.create, result: IS.equal, key, createRevision };
    const inbox = Buffer.from(this.#keys.message(lease, claimId));
    const put = { key: inbox, value: Buffer.from(reason), lease };
    const { succeeded } = await explained(
      this.#client.txn({ compare: [stands], success: [{ put }] }, { withinMs: EVICT_MS, repeatable: true }),
    );
    return succeeded;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
  }
}
