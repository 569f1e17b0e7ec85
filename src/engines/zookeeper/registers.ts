/**
 * A register is one node: value, token, when it was written, and the fence, the highest token that a reader and a writer has
 * presented; in JSON, tokens as text. It is changed only if nobody has changed it since it was read, by its version, and
 * else read again: somebody gets through each time. A majority has it on disk before we hear that it was written.
 *
 * ZooKeeper tells when a node was changed, but not what time it is, so the age is by the clocks of the processes that wrote and
 * read it.
 */
import type { Clock } from '../../core/clock.js';
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import type { ZooKeeperClient } from './client/client.js';
import { CODE, isStatus } from './client/status.js';
import { explained } from './explain.js';
import type { Paths } from './paths.js';

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
  /** Undefined: there is no node yet. */
  readonly version: number | undefined;
}

const EMPTY: Register = { value: undefined, token: 0n, at: 0, maxRead: 0n, maxWrite: 0n };

interface RegistersSetup {
  readonly client: () => Promise<ZooKeeperClient>;
  readonly paths: Paths;
  readonly clock: Clock;
}

export class ZooKeeperRegisters implements Registers {
  readonly #setup: RegistersSetup;

  constructor(setup: RegistersSetup) {
    this.#setup = setup;
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    const opened = fence
      ? await this.#change(name, (register) => present(register, fence))
      : { ok: true as const, value: (await this.#see(name)).register };
    if (!opened.ok) return opened;
    const { value, token, at } = opened.value;
    if (value === undefined) return { ok: true, value: undefined };
    return { ok: true, value: { value, token, ageMs: Math.max(0, this.#setup.clock.wall() - at) } };
  }

  async write(name: string, value: string, token: bigint): Promise<Fenced<void>> {
    const written = await this.#change(name, (register) => {
      const opened = present(register, { token, mode: 'write' });
      return opened && { ...opened, value, token, at: this.#setup.clock.wall() };
    });
    return written.ok ? { ok: true, value: undefined } : written;
  }

  /** The register as it is then; not ok: `to` gives nothing, so it stays as it is. Repeating it changes nothing more. */
  async #change(name: string, to: (register: Register) => Register | undefined): Promise<Fenced<Register>> {
    for (;;) {
      const { register, version } = await this.#see(name);
      const changed = to(register);
      if (!changed) return { ok: false, newest: newest(register) };
      if (changed === register || (await this.#swap(name, version, changed))) return { ok: true, value: changed };
    }
  }

  /** As new as whatever was written before we were asked. */
  async #see(name: string): Promise<Seen> {
    const client = await this.#setup.client();
    const path = this.#setup.paths.register(name);
    try {
      const [, { data, stat }] = await Promise.all([client.sync(), client.getData(path)]);
      return { register: parse(data.toString()), version: stat.version };
    } catch (error) {
      if (isStatus(error, CODE.noNode)) return { register: EMPTY, version: undefined };
      return explained(Promise.reject(error));
    }
  }

  /** False: somebody else was quicker. If it is carried out and its answer lost, the next look sees it. */
  async #swap(name: string, version: number | undefined, register: Register): Promise<boolean> {
    const client = await this.#setup.client();
    const path = this.#setup.paths.register(name);
    const data = Buffer.from(print(register));
    try {
      if (version === undefined) await client.create(path, { data, mode: 'persistent' });
      else await client.setData(path, data, version);
      return true;
    } catch (error) {
      if (isStatus(error, CODE.badVersion, CODE.nodeExists)) return false;
      if (!isStatus(error, CODE.noNode)) return explained(Promise.reject(error));
    }
    if (version === undefined) await explained(client.make(path.slice(0, path.lastIndexOf('/')), 'persistent'));
    return false;
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
