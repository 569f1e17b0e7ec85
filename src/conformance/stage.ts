import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import {
  type Clock,
  type Engine,
  type EngineSource,
  Holdfast,
  type HoldfastOptions,
  type LineView,
  type Lock,
  type Registers,
  type Timer,
  type Traits,
} from '../index.js';
import { Actor } from './protocol.js';
import { realClock } from './real-clock.js';
import { StallableClock } from './stallable-clock.js';

export interface StageSetup {
  readonly source: () => EngineSource | string;
  readonly traits: Traits;
  /** For cases that wait until somebody counts as dead. */
  readonly shortTtlMs: number;
  /** For all others: so long that no beat and no expiry comes to the rescue of a wake-up that got lost. */
  readonly longTtlMs: number;
  /** Undefined: the real one. */
  readonly clock?: Clock;
}

/** How long a wait for a busy lock lasts until it is given up: time enough for any engine to say that it is busy. */
export const BUSY_MS = 4_000;

/** An instance that can be stopped as if its process were. Its ttl is the short one. */
export interface Stallable {
  readonly locks: Holdfast;
  /** Stops its timers. Time goes on. */
  readonly stall: () => void;
  readonly resume: () => void;
}

export interface Protocol {
  readonly open: (name: string, options?: { ttlMs?: number }) => Promise<Actor>;
  /** Stops what the engine does by itself, so that nothing happens from here on but what is called for. */
  readonly hush: () => void;
}

/** What a case plays on: instances in a namespace of its own, all closed at the end. */
export class Stage {
  readonly traits: Traits;
  readonly shortTtlMs: number;
  readonly namespace = `test-${randomBytes(6).toString('hex')}`;
  readonly #setup: StageSetup;
  readonly #time: Clock;
  readonly #holdfasts = new Set<Holdfast>();
  readonly #clocks: StallableClock[] = [];
  readonly #actors: Actor[] = [];
  readonly #engines: Engine[] = [];
  #names = 0;
  #over = false;
  /** What the case waits for at the moment, for the message if it never comes. */
  awaited: string | undefined;

  constructor(setup: StageSetup) {
    this.#setup = setup;
    this.#time = setup.clock ?? realClock;
    this.traits = setup.traits;
    this.shortTtlMs = setup.shortTtlMs;
  }

  /** Monotonic milliseconds. */
  now(): number {
    return this.#time.now();
  }

  /** A timer on the stage's clock. */
  timer(ms: number, run: () => void): Timer {
    return this.#time.timer(ms, run);
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.timer(ms, resolve));
  }

  /** Lets everybody else run: callbacks, timers that are due, packets that have arrived. */
  breath(): Promise<void> {
    return this.sleep(1);
  }

  /** A name that nothing else on this stage has. */
  name(): string {
    this.#names += 1;
    return `lock-${this.#names}`;
  }

  /** Another name in the same realm, so that one session can claim both. */
  nameNear(name: string): string {
    for (;;) {
      const near = this.name();
      if (this.#realm(near) === this.#realm(name)) return near;
    }
  }

  holdfast(options: HoldfastOptions = {}): Holdfast {
    const { source, longTtlMs: ttl, clock } = this.#setup;
    const locks = new Holdfast(source(), { ttl, namespace: this.namespace, ...(clock && { clock }), ...options });
    this.#holdfasts.add(locks);
    return locks;
  }

  /** An instance that beats soon: an engine may keep the news of an eviction until then. */
  lively(): Holdfast {
    return this.holdfast({ ttl: 3 * this.shortTtlMs });
  }

  stallable(): Stallable {
    const clock = this.#clock();
    const locks = this.holdfast({ ttl: this.shortTtlMs, clock });
    return { locks, stall: () => clock.stall(), resume: () => clock.resume() };
  }

  /** The raw engine. */
  async engine(clock = this.#clock(), namespace = this.namespace): Promise<Engine> {
    const engine = await this.#source().connect({ namespace, clock });
    this.#engines.push(engine);
    return engine;
  }

  /** Those of an engine that says it has some. */
  async registers(): Promise<Registers> {
    const { registers } = await this.engine();
    assert.ok(registers, 'the trait says that there are registers');
    return registers;
  }

  /** The raw engine's sessions, each in the realm of a name. */
  async protocol(namespace = this.namespace): Promise<Protocol> {
    const clock = this.#clock();
    const engine = await this.engine(clock, namespace);
    const open: Protocol['open'] = async (name, { ttlMs = this.#setup.longTtlMs } = {}) => {
      const options = { id: clock.id(), realm: this.#realm(name), ttlMs, label: 'conformance' };
      const actor = await Actor.open(engine, options, clock.id());
      this.#actors.push(actor);
      return actor;
    };
    return { open, hush: () => clock.hush() };
  }

  /** Waits for a condition. There is no limit of its own: the case as a whole has one. */
  async eventually(what: string, condition: () => unknown): Promise<void> {
    this.awaited = what;
    for (let pauseMs = 1; !(await condition()); pauseMs = Math.min(50, pauseMs * 2)) {
      if (this.#over) return;
      await this.sleep(pauseMs);
    }
    this.awaited = undefined;
  }

  /**
   * Waits until so many claims wait in the lock's line. Where lines can't be listed, until every instance has had an
   * answer to a question that it asked later: that proves less, but it is never wrong.
   */
  async queued(lock: Lock, waiting: number): Promise<void> {
    if (!this.traits.listing) {
      await Promise.all([...this.#holdfasts].map((locks) => locks.mutex(this.name()).run(() => {})));
      return;
    }
    await this.eventually(`${waiting} claims wait for ${lock.name}`, async () => {
      const { claims } = await lock.inspect();
      return claims.filter(({ state }) => state === 'waiting').length === waiting;
    });
  }

  /** All lines of a namespace. */
  async lines(locks: Holdfast): Promise<readonly LineView[]> {
    const lines: LineView[] = [];
    for await (const line of locks.inspect()) lines.push(line);
    return lines;
  }

  /** Closes everything, and then nothing may be left in any line. */
  async strike(): Promise<void> {
    await this.close();
    if (!this.traits.listing) return;
    this.#over = false;
    const observer = this.holdfast();
    await this.eventually('no claim is left behind by anybody', async () => (await this.lines(observer)).length === 0);
    await this.close();
  }

  async close(): Promise<void> {
    this.#over = true;
    for (const clock of this.#clocks) clock.resume();
    await Promise.all(this.#actors.splice(0).map(({ session }) => session.close()));
    await Promise.all([...this.#holdfasts].map((locks) => locks.close({ drain: 0 })));
    this.#holdfasts.clear();
    await Promise.all(this.#engines.splice(0).map((engine) => engine[Symbol.asyncDispose]()));
  }

  #source(): EngineSource {
    const source = this.#setup.source();
    assert.ok(typeof source !== 'string', 'a URL hides its engine');
    return source;
  }

  #realm(name: string): string {
    return this.#source().realm?.(name) ?? '';
  }

  #clock(): StallableClock {
    const clock = new StallableClock(this.#time);
    this.#clocks.push(clock);
    return clock;
  }
}

/** The claims in a lock's line, in order. */
export async function claimIds(lock: Lock): Promise<readonly string[]> {
  return (await lock.inspect()).claims.map(({ id }) => id);
}
