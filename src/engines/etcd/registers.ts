/**
 * A register is one key: value, token, when it was written, and the fence, the highest token that a reader and a writer has
 * presented; in JSON, tokens as text. It is changed only if nobody has changed it since it was read, by its mod revision, and
 * else read again: somebody gets through each time. A majority has it on disk before we hear that it was written.
 *
 * etcd tells nobody the time, so the age is by the clocks of the processes that wrote and read it.
 */
import type { Clock } from '../../core/clock.js';
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import type { EtcdClient } from './client/client.js';
import { IS, TARGET } from './client/messages.js';
import { explained } from './explain.js';
import type { Keys } from './keys.js';
import { text } from './lines.js';

interface Register {
  readonly value: string | undefined;
  readonly token: bigint;
  /** Epoch milliseconds by the writer's clock. */
  readonly at: number;
  readonly maxRead: bigint;
  readonly maxWrite: bigint;
}

interface Seen {
  readonly register: Register;
  readonly modRevision: bigint;
}

const EMPTY: Register = { value: undefined, token: 0n, at: 0, maxRead: 0n, maxWrite: 0n };
const CALL_MS = 3_000;

export class EtcdRegisters implements Registers {
  readonly #client: EtcdClient;
  readonly #keys: Keys;
  readonly #clock: Clock;

  constructor(client: EtcdClient, keys: Keys, clock: Clock) {
    this.#client = client;
    this.#keys = keys;
    this.#clock = clock;
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    const opened = fence
      ? await this.#change(name, (register) => present(register, fence))
      : { ok: true as const, value: (await this.#see(name)).register };
    if (!opened.ok) return opened;
    const { value, token, at } = opened.value;
    if (value === undefined) return { ok: true, value: undefined };
    return { ok: true, value: { value, token, ageMs: Math.max(0, this.#clock.wall() - at) } };
  }

  async write(name: string, value: string, token: bigint): Promise<Fenced<void>> {
    const written = await this.#change(name, (register) => {
      const opened = present(register, { token, mode: 'write' });
      return opened && { ...opened, value, token, at: this.#clock.wall() };
    });
    return written.ok ? { ok: true, value: undefined } : written;
  }

  /** The register as it is then; not ok: `to` gives nothing, so it stays as it is. Repeating it changes nothing more. */
  async #change(name: string, to: (register: Register) => Register | undefined): Promise<Fenced<Register>> {
    for (;;) {
      const { register, modRevision } = await this.#see(name);
      const changed = to(register);
      if (!changed) return { ok: false, newest: newest(register) };
      if (changed === register || (await this.#swap(name, modRevision, changed))) return { ok: true, value: changed };
    }
  }

  async #see(name: string): Promise<Seen> {
    const { kvs } = await explained(this.#client.range({ key: this.#key(name) }, { withinMs: CALL_MS }));
    const kv = kvs[0];
    return kv ? { register: parse(text(kv.value)), modRevision: kv.modRevision } : { register: EMPTY, modRevision: 0n };
  }

  async #swap(name: string, modRevision: bigint, register: Register): Promise<boolean> {
    const key = this.#key(name);
    const unchanged = { target: TARGET.mod, result: IS.equal, key, modRevision };
    const put = { key, value: Buffer.from(print(register)) };
    // If it is carried out and its answer lost, the second one fails, and the register is read again.
    const calling = { withinMs: CALL_MS, repeatable: true };
    const { succeeded } = await explained(this.#client.txn({ compare: [unchanged], success: [{ put }] }, calling));
    return succeeded;
  }

  #key(name: string): Buffer {
    return Buffer.from(this.#keys.register(name));
  }
}

/** A reader needs a token above every writer's, a writer one that is not below a writer's and above every reader's. */
function present(register: Register, { token, mode }: Fence): Register | undefined {
  const { maxRead, maxWrite } = register;
  if (mode === 'read') {
    if (token <= maxWrite) return undefined;
    return token > maxRead ? { ...register, maxRead: token } : register;
  }
  if (token < maxWrite || token <= maxRead) return undefined;
  return token > maxWrite ? { ...register, maxWrite: token } : register;
}

function newest({ maxRead, maxWrite }: Register): bigint {
  return maxRead > maxWrite ? maxRead : maxWrite;
}

function print(register: Register): string {
  return JSON.stringify(register, (_key, field: unknown) => (typeof field === 'bigint' ? `${field}` : field));
}

function parse(json: string): Register {
  const { value, token, at, maxRead, maxWrite } = JSON.parse(json) as Record<string, unknown>;
  return {
    value: typeof value === 'string' ? value : undefined,
    token: BigInt(String(token)),
    at: Number(at),
    maxRead: BigInt(String(maxRead)),
    maxWrite: BigInt(String(maxWrite)),
  };
}
