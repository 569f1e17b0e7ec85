import type { SessionListener } from '../../src/core/engine.js';
import { Space, type SpaceTime } from '../../src/engines/memory/protocol.js';
import { SimProcess } from './process.js';
import type { Random } from './random.js';
import type { Scheduler } from './scheduler.js';

/** The longest ttl that any client of the simulation uses. */
const LONGEST_TTL_MS = 2_000;

/**
 * A lock server: the memory engine's space behind a network. It crashes and comes back, with its memory or without. A
 * server that lost its memory can't know who holds what, so it grants nothing for one ttl: the guard that a real engine
 * without persistence needs, too.
 */
export class SimServer {
  space = new Space();
  readonly process: SimProcess;
  /** Something happened in the server that a user can't see, and that must not happen. */
  readonly complain: (what: string) => void;
  readonly #scheduler: Scheduler;
  #up = true;
  #guardedUntil = 0;

  constructor(scheduler: Scheduler, random: Random, complain: (what: string) => void) {
    this.complain = complain;
    this.#scheduler = scheduler;
    this.process = new SimProcess('server', scheduler, random);
    this.#sweep();
  }

  get up(): boolean {
    return this.#up && this.process.running;
  }

  get time(): SpaceTime {
    return { now: this.process.clock.now(), wall: this.process.clock.wall() };
  }

  get guarded(): boolean {
    return this.time.now < this.#guardedUntil;
  }

  crash(forMs: number, keepsMemory: boolean): void {
    if (!this.#up) return;
    this.#up = false;
    this.#scheduler.after(forMs, () => {
      this.#up = true;
      if (keepsMemory) return;
      this.space = new Space();
      this.#guardedUntil = this.time.now + LONGEST_TTL_MS;
    });
  }

  /** A session's listener lives in this server: a push of a space that is gone goes nowhere. */
  listener(push: (tell: (listener: SessionListener) => void) => void): SessionListener {
    return {
      granted: (id, token) => push((listener) => listener.granted(id, token)),
      lost: (id, loss) => push((listener) => listener.lost(id, loss)),
      ended: (loss) => push((listener) => listener.ended(loss)),
      hinted: () => push((listener) => listener.hinted()),
    };
  }

  /** Real engines notice the dead by a timer, too, not only when somebody calls. */
  #sweep(): void {
    this.#scheduler.after(200, () => {
      if (this.up) this.space.reap(this.time);
      this.#sweep();
    });
  }
}
