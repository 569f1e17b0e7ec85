import type { Clock, Timer } from '../../core/clock.js';
import type {
  Engine,
  EngineLine,
  EngineSetup,
  LineQuery,
  OpenOptions,
  Registers,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { shared } from '../../core/one-library.js';
import { Space, timeOf } from './protocol.js';
import { MemoryRegisters } from './registers.js';
import { MemorySession } from './session.js';

const spaces = shared('memory', () => new Map<string, SharedSpace>());

/**
 * A space and the timers that reap it while nobody calls. Each clock has one of its own: where a test has stopped the
 * clock of one instance, the others still hear of its death. Timers may differ, but all clocks of a space must tell the
 * same time: expiry is judged by whoever comes by.
 */
class SharedSpace {
  readonly space = new Space();
  readonly #reapers = new Map<Clock, Reaper>();

  join(clock: Clock): void {
    if (!this.#reapers.has(clock)) this.#reapers.set(clock, new Reaper(this.space, clock));
  }

  watch(): void {
    for (const reaper of this.#reapers.values()) reaper.watch();
  }
}

class Reaper {
  readonly #space: Space;
  readonly #clock: Clock;
  #timer: Timer | undefined;
  #timerAt = Number.POSITIVE_INFINITY;

  constructor(space: Space, clock: Clock) {
    this.#space = space;
    this.#clock = clock;
  }

  /** Waiters must hear of a holder's death though nobody calls: a dead process calls no more. */
  watch(): void {
    const at = this.#space.nextDeath;
    if (at >= this.#timerAt) return;
    this.#timer?.close();
    this.#timerAt = at;
    this.#timer = this.#clock.timer(Math.max(1, at - this.#clock.now()), () => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#space.reap(timeOf(this.#clock));
      if (this.#space.nextDeath < Number.POSITIVE_INFINITY) this.watch();
    });
    this.#timer.unref();
  }
}

export class MemoryEngine implements Engine {
  readonly #shared: SharedSpace;
  readonly #clock: Clock;
  readonly registers: Registers;

  constructor(name: string, { namespace, clock }: EngineSetup) {
    const key = JSON.stringify([name, namespace]);
    const shared = spaces.get(key) ?? new SharedSpace();
    spaces.set(key, shared);
    shared.join(clock);
    this.#shared = shared;
    this.#clock = clock;
    this.registers = new MemoryRegisters(shared.space, clock);
  }

  open({ id, ttlMs }: OpenOptions, listener: SessionListener): Promise<Session> {
    this.#shared.space.open(id, ttlMs, listener, timeOf(this.#clock));
    this.#shared.watch();
    return Promise.resolve(new MemorySession(this.#shared.space, id, ttlMs, this.#clock));
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    this.#shared.space.reap(timeOf(this.#clock));
    yield* this.#shared.space.inspect(query);
  }

  evict(name: string, claimId: string, reason: string): Promise<boolean> {
    this.#shared.space.reap(timeOf(this.#clock));
    return Promise.resolve(this.#shared.space.evict(name, claimId, reason));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The space belongs to all instances of the process.
  }
}
