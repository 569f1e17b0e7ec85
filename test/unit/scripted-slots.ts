import type { Claim, ClaimRef, LineRef } from '../../src/core/engine.js';
import type { Loss } from '../../src/core/errors.js';
import { ALL } from '../../src/core/line.js';
import type { HeldSlot, Pace, SlotStore, SlotWatch, Taken } from '../../src/kit/slot-store.js';
import type { VirtualClock } from './virtual-clock.js';

interface Taker {
  readonly token: bigint;
  weight: number;
  until: number;
}

/**
 * Slots in memory, and between us and them a network that a test can make late or lossy: `network` gets every call by its
 * name and runs it, or does not, when it likes.
 */
export class ScriptedSlots implements SlotStore {
  readonly pace: Pace = { firstMs: 100, mostMs: 1_000 };
  unordered = false;
  /** In the order in which they were sent: 'take a', 'keep a,b', 'drop a', 'watch job'. */
  readonly calls: string[] = [];
  closed = 0;
  network: <T>(call: string, run: () => T) => Promise<T> = async (_, run) => run();
  /** Set by the session that uses it. */
  lost: (claimId: string, loss: Loss) => void = () => {};
  readonly #clock: VirtualClock;
  readonly #ttlMs: number;
  readonly #watching = new Set<{ readonly freed: () => void }>();
  readonly #slots = new Map<string, Map<string, Taker>>();
  #tokens = 0n;

  constructor(clock: VirtualClock, ttlMs: number) {
    this.#clock = clock;
    this.#ttlMs = ttlMs;
  }

  take({ id, line, weight }: Claim): Promise<Taken> {
    return this.#send(`take ${id}`, () => this.#take(id, line.name, weight));
  }

  keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const ids = slots.map(({ id }) => id);
    return this.#send(`keep ${ids.join()}`, () => {
      const lost = slots.filter(({ id, line }) => !this.#at(line.name).has(id)).map(({ id }) => id);
      for (const { id, line } of slots) this.#renew(this.#at(line.name).get(id));
      return lost;
    });
  }

  drop({ id, line }: ClaimRef): Promise<boolean> {
    return this.#send(`drop ${id}`, () => this.free(line.name, id));
  }

  readonly lighten = ({ id, line, weight }: Claim): Promise<void> =>
    this.#send(`lighten ${id}`, () => {
      const taker = this.#at(line.name).get(id);
      if (taker) taker.weight = weight;
    });

  readonly watch = ({ name }: LineRef, freed: () => void): Promise<SlotWatch> =>
    this.#send(`watch ${name}`, () => {
      // Two may hand in the same function.
      const listener = { freed };
      this.#watching.add(listener);
      return { close: async () => void this.#watching.delete(listener) };
    });

  async close(): Promise<void> {
    this.closed += 1;
  }

  /** Somebody else takes it, and keeps it until it is freed. */
  occupy(name: string): void {
    this.#at(name).set('somebody else', { token: 0n, weight: ALL, until: Number.POSITIVE_INFINITY });
  }

  /** Without a hint. */
  free(name: string, id = 'somebody else'): boolean {
    return this.#at(name).delete(id);
  }

  get watches(): number {
    return this.#watching.size;
  }

  hint(): void {
    for (const { freed } of this.#watching) freed();
  }

  holders(name: string): string[] {
    return [...this.#at(name).keys()];
  }

  /** When a slot runs out if it is not renewed. */
  until(name: string, id: string): number | undefined {
    return this.#at(name).get(id)?.until;
  }

  /** Calls whose name begins like this. */
  sent(beginning: string): string[] {
    return this.calls.filter((call) => call.startsWith(beginning));
  }

  #send<T>(call: string, run: () => T): Promise<T> {
    this.calls.push(call);
    return this.network(call, run);
  }

  #take(id: string, name: string, weight: number): Taken {
    const takers = this.#at(name);
    const taker = takers.get(id);
    if (taker) {
      this.#renew(taker);
      return { token: taker.token };
    }
    const others = [...takers.values()];
    if (others.reduce((sum, other) => sum + other.weight, weight) > ALL) {
      const until = Math.max(...others.map((other) => other.until));
      return { freeInMs: until === Number.POSITIVE_INFINITY ? undefined : until - this.#clock.now() };
    }
    this.#tokens += 1n;
    takers.set(id, { token: this.#tokens, weight, until: this.#clock.now() + this.#ttlMs });
    return { token: this.#tokens };
  }

  #renew(taker: Taker | undefined): void {
    if (taker) taker.until = this.#clock.now() + this.#ttlMs;
  }

  /** Those whose time is over have gone. */
  #at(name: string): Map<string, Taker> {
    const takers = this.#slots.get(name) ?? new Map<string, Taker>();
    this.#slots.set(name, takers);
    for (const [id, { until }] of takers) if (until <= this.#clock.now()) takers.delete(id);
    return takers;
  }
}
