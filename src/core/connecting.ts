import type { Clock } from './clock.js';
import type { Engine } from './engine.js';
import { outside } from './outside.js';

/** How long a source may take to connect before it is asked anew; at least one ttl. */
const CONNECT_WITHIN_MS = 10_000;

export interface ConnectingSetup {
  readonly clock: Clock;
  readonly ttlMs: number;
  readonly connect: () => Promise<Engine>;
  /** Calls it when the instance is over, unless it is told before that it need not. */
  readonly onOver: (run: () => void) => () => void;
}

/** The engine of an instance, connected with its first use, and anew after a failure. */
export class ConnectingEngine {
  readonly #setup: ConnectingSetup;
  #engine: Promise<Engine> | undefined;
  #connected = false;

  constructor(setup: ConnectingSetup) {
    this.#setup = setup;
  }

  engine(): Promise<Engine> {
    if (!this.#engine) {
      const { clock, ttlMs, connect, onOver } = this.#setup;
      // A source that throws instead of rejecting is only another way to fail.
      const connecting = outside(async () => connect());
      this.#engine = connecting;
      // One that does not answer is asked again, after a while: else a single lost packet would cost the instance.
      const hanging = clock.timer(Math.max(ttlMs, CONNECT_WITHIN_MS), () => this.#forgo(connecting));
      hanging.unref();
      const forgetOver = onOver(() => hanging.close());
      connecting.then(
        () => {
          hanging.close();
          forgetOver();
          this.#connected ||= this.#engine === connecting;
        },
        () => {
          hanging.close();
          forgetOver();
          if (this.#engine === connecting) this.#engine = undefined;
        },
      );
    }
    return this.#engine;
  }

  /** Undefined where nobody has to wait for it: an engine that has not connected yet does not keep us. */
  dispose(): Promise<void> | undefined {
    const disposed = this.#engine?.then((engine) => engine[Symbol.asyncDispose]());
    if (this.#connected) return disposed;
    disposed?.catch(() => {});
    return undefined;
  }

  #forgo(connecting: Promise<Engine>): void {
    this.#engine = undefined;
    connecting.then((engine) => engine[Symbol.asyncDispose]()).catch(() => {});
  }
}
