import type { Clock } from '../../../core/clock.js';
import type { Engine, EngineSetup, OpenOptions, Session, SessionListener } from '../../../core/engine.js';
import type { KeyOf } from '../../../kit/encoded-name.js';
import { SlotSession } from '../../../kit/slot-session.js';
import { explain, type RedisPort } from '../client/port.js';
import { RedisRegisters } from '../registers.js';
import { keysUnder } from './keys.js';
import { RedisSlots, type SlotProtocol } from './store.js';
import { SlotWatches } from './watches.js';

/** plain and hash: one key per lock, which other programs may use, too. */
export class SlotEngine implements Engine {
  readonly registers: RedisRegisters;
  readonly #port: RedisPort;
  readonly #protocol: SlotProtocol;
  readonly #keyOf: KeyOf;
  readonly #clock: Clock;
  readonly #watches: SlotWatches;

  constructor(port: RedisPort, protocol: SlotProtocol, keyOf: KeyOf | undefined, { namespace, clock }: EngineSetup) {
    this.#port = port;
    this.#protocol = protocol;
    this.#keyOf = keyOf ?? keysUnder(namespace);
    this.#clock = clock;
    this.#watches = new SlotWatches(port);
    this.registers = new RedisRegisters(port, namespace);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    // There is nothing to open. But who may not run scripts here, or is not let in, should hear it now.
    await this.#port.run(this.#protocol.keep, [], [`${options.ttlMs}`]).catch(explain);
    const store = new RedisSlots({
      port: this.#port,
      protocol: this.#protocol,
      keyOf: this.#keyOf,
      watches: this.#watches,
      ttlMs: options.ttlMs,
    });
    return new SlotSession({ options, listener, clock: this.#clock, store: () => store });
  }

  async ping(): Promise<void> {
    await this.#port.run(this.#protocol.keep, [], ['1']).catch(explain);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#port.close();
  }
}
