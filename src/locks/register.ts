import type { Registers } from '../core/engine.js';
import { calling, ConfigError, quote, StaleTokenError } from '../core/errors.js';
import type { Instance } from '../core/instance.js';
import { checkName, checkText } from '../core/names.js';
import { withTokenAsText } from '../core/view.js';
import { type Lease, ownLease } from './lease.js';

/** Longer ones are stored elsewhere, with their keys here. */
export const LONGEST_VALUE_BYTES = 64 * 1024;

export interface RegisterValue {
  readonly value: string;
  /** The token of the lease that wrote it. */
  readonly token: bigint;
  /** Milliseconds since it was written, by the engine's clock. */
  readonly age: number;
}

/** A small named value that only a token at least as new as the last one presented may overwrite. */
export class Register {
  readonly name: string;
  readonly #instance: Instance;

  /** @internal */
  constructor(instance: Instance, name: string) {
    this.#instance = instance;
    this.name = checkName(name);
  }

  /**
   * Reads it. With a lease, its token is presented first: from then on older tokens are refused. A read-modify-write
   * must present its token with the read already, or an update can still be lost.
   */
  get(lease?: Lease): Promise<RegisterValue | undefined> {
    return calling(() => this.#get(lease));
  }

  async #get(lease?: Lease): Promise<RegisterValue | undefined> {
    const fence = lease === undefined ? undefined : ownLease(lease, 'lease').fenceFor(this.#instance, this.name);
    const read = await this.#call('register.get', (registers) => registers.read(this.name, fence));
    if (!read.ok) throw new StaleTokenError(this.name, fence!.token, read.newest);
    if (!read.value) return undefined;
    const { value, token, ageMs } = read.value;
    return withTokenAsText({ value, token, age: Math.max(0, ageMs) });
  }

  /** Writes it, whatever the state of the lease: the engine decides by the token. Throws StaleTokenError. */
  set(value: string, lease: Lease): Promise<void> {
    return calling(() => this.#set(value, lease));
  }

  async #set(value: string, lease: Lease): Promise<void> {
    checkText(value, `Register ${quote(this.name)}'s value`, LONGEST_VALUE_BYTES);
    const { token, mode } = ownLease(lease, 'lease').fenceFor(this.#instance, this.name);
    if (mode === 'read')
      throw new ConfigError(`A read lease of ${quote(this.name)} can't write its register. Take the write lock.`);
    const written = await this.#call('register.set', (registers) => registers.write(this.name, value, token));
    if (!written.ok) throw new StaleTokenError(this.name, token, written.newest);
  }

  async #call<T>(doing: string, work: (registers: Registers) => Promise<T>): Promise<T> {
    const registers = await this.#instance.registers(doing);
    return this.#instance.call(doing, () => work(registers));
  }
}
