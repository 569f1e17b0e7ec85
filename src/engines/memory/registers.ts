import type { Clock } from '../../core/clock.js';
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import { type Space, timeOf } from './protocol.js';

export class MemoryRegisters implements Registers {
  readonly #space: Space;
  readonly #clock: Clock;

  constructor(space: Space, clock: Clock) {
    this.#space = space;
    this.#clock = clock;
  }

  read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    return Promise.resolve(this.#space.read(name, fence, timeOf(this.#clock)));
  }

  write(name: string, value: string, token: bigint, keepMs?: number): Promise<Fenced<void>> {
    return Promise.resolve(this.#space.write(name, value, token, timeOf(this.#clock), keepMs));
  }
}
