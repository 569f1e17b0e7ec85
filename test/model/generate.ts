import { Random } from '../simulation/random.js';
import {
  type Actor,
  type InstanceSpec,
  type LockRef,
  type Options,
  PERMITS,
  type Program,
  type Step,
  type Steps,
  type Weather,
} from './program.js';

/** Programs of users, each from its seed. Small: what goes wrong goes wrong between two or three of them. */
export function generate(seed: number): Program {
  return new Author(seed).program(seed);
}

const DEEPEST = 3;
export const NAMES = ['a', 'a', 'a', 'b'] as const;
const PAUSES_MS = [1, 5, 20, 60, 200, 700] as const;

class Author {
  readonly #random: Random;
  #slots = 0;

  constructor(seed: number) {
    // Small seeds beside each other begin alike.
    this.#random = new Random(seed * 7_919).fork();
  }

  program(seed: number): Program {
    const random = this.#random;
    const instances = Array.from({ length: random.pick([1, 1, 2, 2, 3]) }, () => this.#instance());
    const actors: Actor[] = [];
    const count = instances.length + random.int(3);
    for (let i = 0; i < count; i += 1) {
      actors.push({ instance: i % instances.length, steps: this.#steps([], 0) });
    }
    return { seed, network: this.#weather(), instances, actors };
  }

  #instance(): InstanceSpec {
    return { ttl: this.#random.pick([1_000, 1_000, 2_000]), cohort: this.#random.chance(0.8) };
  }

  #weather(): Weather {
    const random = this.#random;
    const delayMs = random.pick([0.5, 5, 20, 60]);
    if (random.chance(0.5)) return { delayMs, loss: 0, twice: 0, pushLoss: 0 };
    return {
      delayMs,
      loss: random.pick([0, 0.02, 0.15]),
      twice: random.pick([0, 0.1]),
      pushLoss: random.pick([0, 0, 0.3]),
    };
  }

  /** `inside` are the slots of the leases that the code is inside of, innermost first. */
  #steps(inside: readonly string[], depth: number): Steps {
    const random = this.#random;
    const count = 1 + random.int(depth === 0 ? 5 : 4);
    const steps: Step[] = [];
    const known = [...inside];
    for (let i = 0; i < count; i += 1) {
      const step = this.#step(known, depth);
      steps.push(step);
      if ('as' in step) known.unshift(step.as);
    }
    return steps;
  }

  #step(known: readonly string[], depth: number): Step {
    const random = this.#random;
    const dice = random.next();
    if (depth < DEEPEST && dice < 0.32) return this.#function(known, depth);
    if (dice < 0.44) return this.#acquire(known);
    if (known.length > 0 && dice < 0.72) return this.#withLease(known, depth);
    if (depth < DEEPEST && dice < 0.8) return this.#aside(known, depth);
    if (dice < 0.83) return { do: 'evict', name: random.pick(NAMES), place: random.int(2) };
    if (dice < 0.85)
      return random.chance(0.5) ? { do: 'close' } : { do: 'close', drain: random.pick([0, 50, 500, 2_000]) };
    if (dice < 0.88) return { do: 'stall', ms: random.pick([30, 100, 400, 1_500]) };
    if (dice < 0.91) {
      return { do: 'fault', what: random.pick(['cut', 'deafen', 'hang']), ms: random.pick([50, 400, 1_500]) };
    }
    if (depth > 0 && dice < 0.93) return { do: 'throw' };
    return { do: 'pause', ms: random.pick(PAUSES_MS) };
  }

  #function(known: readonly string[], depth: number): Step {
    const random = this.#random;
    const as = this.#slot();
    const body = this.#steps([as, ...known], depth + 1);
    const dice = random.next();
    if (dice < 0.08) return { do: 'lead', name: random.pick(NAMES), as, body };
    if (dice < 0.16) {
      const atMost = random.pick([undefined, 30, 100, 500]);
      return { do: 'once', name: random.pick(NAMES), as, ...(atMost !== undefined && { atMost }), body };
    }
    if (dice < 0.26) {
      const locks = this.#locks();
      const both = this.#steps([`${as}0`, `${as}1`, ...known], depth + 1);
      return { do: 'all', locks, as, ...this.#options(undefined, known), body: both };
    }
    const lock = this.#lock();
    return { do: 'run', lock, as, ...this.#options(lock, known), body };
  }

  #acquire(known: readonly string[]): Step {
    const random = this.#random;
    const as = this.#slot();
    if (random.chance(0.1)) return { do: 'all', locks: this.#locks(), as, ...this.#options(undefined, known) };
    const lock = this.#lock();
    return { do: random.chance(0.7) ? 'acquire' : 'try', lock, as, ...this.#options(lock, known) };
  }

  #withLease(known: readonly string[], depth: number): Step {
    const random = this.#random;
    const lease = this.#one(known);
    const dice = random.next();
    if (dice < 0.5) return { do: 'release', lease };
    if (dice < 0.7) return { do: 'downgrade', lease, as: this.#slot() };
    if (dice < 0.9) return { do: random.chance(0.5) ? 'get' : 'set', lease };
    return { do: 'onLost', lease, steps: this.#steps(known, depth + 2) };
  }

  #aside(known: readonly string[], depth: number): Step {
    if (this.#random.chance(0.4)) return { do: 'detach', steps: this.#steps(known, depth + 1) };
    const branches = [this.#steps(known, depth + 1), this.#steps(known, depth + 1)];
    return { do: 'together', branches };
  }

  #options(lock: LockRef | undefined, known: readonly string[]): { options?: Options } {
    const random = this.#random;
    const options: { -readonly [K in keyof Options]: Options[K] } = {};
    if (random.chance(0.25)) options.timeout = random.pick([0, 10, 50, 300, 1_000]);
    else if (random.chance(0.1)) options.abortAfter = random.pick([0, 10, 100]);
    if (random.chance(0.15)) options.maxHold = random.pick([10, 30, 100, 400]);
    if (lock?.startsWith('semaphore')) options.permits = 1 + random.int(PERMITS);
    if (lock && known.length > 0 && random.chance(0.12)) options.within = this.#one(known);
    return Object.keys(options).length > 0 ? { options } : {};
  }

  #lock(): LockRef {
    const random = this.#random;
    const kind = random.pick([
      'mutex',
      'mutex',
      'write',
      'write',
      'write',
      'read',
      'read',
      'read',
      'semaphore',
    ] as const);
    return kind === 'semaphore' ? 'semaphore s' : `${kind} ${random.pick(NAMES)}`;
  }

  #locks(): LockRef[] {
    return this.#random.pick<LockRef[]>([
      ['mutex a', 'mutex b'],
      ['write a', 'read b'],
      ['read a', 'semaphore s'],
    ]);
  }

  /** Mostly the latest that the code has got; sometimes one that another actor will have. */
  #one(known: readonly string[]): string {
    const random = this.#random;
    if (random.chance(0.1) && this.#slots > 0) return `l${1 + random.int(this.#slots)}`;
    return known[Math.min(known.length - 1, Math.floor(random.around(0.8)))]!;
  }

  #slot(): string {
    this.#slots += 1;
    return `l${this.#slots}`;
  }
}
