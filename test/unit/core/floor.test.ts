import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LineKind } from '../../../src/core/engine.js';
import { AcquireTimeoutError, DeadlockError, LeaseLostError } from '../../../src/core/errors.js';
import { ALL, holders } from '../../../src/core/line.js';
import { floorOf, type Outside } from '../../../src/core/floor.js';
import { type Grip, Turn } from '../../../src/core/turn.js';
import { Validity } from '../../../src/core/validity.js';
import { Waiter } from '../../../src/core/waiter.js';
import { settled, VirtualClock } from '../virtual-clock.js';

const TOKEN = 7n;
const COUNT: Outside = {
  admit: () => undefined,
  addPending: () => undefined,
  busy: async (timeoutMs) => new AcquireTimeoutError('order:42', timeoutMs),
};

/** What the outer turn stands on: always well. */
function outerTurn(kind: LineKind, weight: number): Turn {
  const clock = new VirtualClock();
  const validity = new Validity(clock);
  validity.renew(clock.now(), clock.wall(), 1_000);
  const grip: Grip = {
    line: { kind, name: 'order:42' },
    clock,
    outer: undefined,
    waitedFor: false,
    ground: { validity, notice: () => undefined },
    giveBack: () => Promise.resolve(true),
    readersToken: () => TOKEN + 1n,
    lighten: () => Promise.resolve(),
  };
  return new Turn(grip, weight, TOKEN);
}

/** Holds of these kinds, what may be asked for inside of them, and what fits there together. */
const outers = fc.oneof(
  fc.constant({ kind: 'lock' as const, weight: ALL, weights: [ALL], capacity: ALL }),
  fc.constant({ kind: 'lock' as const, weight: ALL, weights: [1, ALL], capacity: ALL }),
  fc.constant({ kind: 'lock' as const, weight: 1, weights: [1, ALL], capacity: ALL }),
  fc.integer({ min: 1, max: 4 }).map((weight) => ({
    kind: 'semaphore' as const,
    weight,
    weights: [1, 2, 3, 4, 5],
    capacity: weight,
  })),
);

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('enter' as const), pick: fc.nat(), once: fc.boolean() }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('release' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('giveUp' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('downgrade' as const), pick: fc.nat() }) },
);

interface Inside {
  readonly number: number;
  readonly waiter: Waiter;
  weight: number;
  turn: Turn | undefined;
}

class Bench {
  readonly clock: VirtualClock;
  readonly outer: Turn;
  /** In order of arrival. */
  inside: Inside[] = [];
  readonly #capacity: number;
  #entered = 0;

  constructor(outer: Turn, capacity: number) {
    this.outer = outer;
    this.clock = outer.clock as VirtualClock;
    this.#capacity = capacity;
  }

  holding(): readonly Inside[] {
    return this.inside.slice(
      0,
      holders(
        this.inside.map(({ weight }) => weight),
        this.#capacity,
      ),
    );
  }

  async enter(weight: number, once: boolean): Promise<void> {
    const waiter = new Waiter(this.clock, weight, { timeoutMs: once ? 0 : undefined, signal: undefined });
    waiter.promise.catch(() => undefined);
    if (weight > this.outer.weight) {
      expect(() => floorOf(this.outer).enter(waiter, COUNT)).toThrow(DeadlockError);
      return;
    }
    const place: Inside = { number: this.#entered, waiter, weight, turn: undefined };
    this.#entered += 1;
    floorOf(this.outer).enter(waiter, COUNT);
    this.inside.push(place);
    if (once && !this.holding().includes(place)) {
      this.inside.pop();
      expect(await waiter.promise).toBeUndefined();
    }
  }

  async release(place: Inside): Promise<void> {
    expect(await place.turn!.release()).toBe(true);
    expect(await place.turn!.release(), 'again, with the same answer').toBe(true);
    this.inside = this.inside.filter((one) => one !== place);
  }

  giveUp(place: Inside): void {
    place.waiter.reject(new Error('gave up'));
    this.inside = this.inside.filter((one) => one !== place);
  }

  async downgrade(place: Inside): Promise<void> {
    const { hand } = place.turn!;
    expect(await place.turn!.downgrade()).not.toBe(hand);
    place.weight = 1;
  }

  /** Those that were served are those that the rule says. */
  async expectRule(): Promise<void> {
    const holding = this.holding();
    for (const place of this.inside) {
      expect(place.waiter.settled, `number ${place.number}`).toBe(holding.includes(place));
      if (place.waiter.settled) place.turn ??= await place.waiter.promise;
    }
    for (const { turn } of holding) expect(turn).toMatchObject({ hand: { token: TOKEN }, state: 'held', held: true });
  }
}

describe('the floor inside a hold', () => {
  test('serves those who enter again by the same rule as a line, with the outer token', async () => {
    await fc.assert(
      fc.asyncProperty(
        outers,
        fc.array(step, { maxLength: 50, size: 'max' }),
        async ({ weights, capacity, ...of }, steps) => {
          const bench = new Bench(outerTurn(of.kind, of.weight), capacity);
          for (const one of steps) {
            const { pick } = one;
            const holding = bench.holding();
            const waiting = bench.inside.slice(holding.length);
            if (one.do === 'enter') {
              await bench.enter(weights[pick % weights.length]!, one.once);
            } else if (one.do === 'release' && holding.length > 0) {
              await bench.release(holding[pick % holding.length]!);
            } else if (one.do === 'giveUp' && waiting.length > 0) {
              bench.giveUp(waiting[pick % waiting.length]!);
            } else if (one.do === 'downgrade' && holding[0]?.weight === ALL) {
              await bench.downgrade(holding[0]);
            }
            await bench.expectRule();
          }

          // The outer release waits for all that is inside, and for nothing more: nobody new gets in.
          let released = false;
          const waiting = bench.inside.slice(bench.holding().length);
          const releasing = bench.outer.close().then(() => (released = true));
          await bench.outer.release();
          for (const { waiter } of waiting) await expect(waiter.promise).rejects.toBeInstanceOf(LeaseLostError);
          bench.inside = [...bench.holding()];
          while (bench.inside.length > 0) {
            await settled();
            expect(released).toBe(false);
            await bench.release(bench.holding()[0]!);
            await bench.expectRule();
          }
          await releasing;
        },
      ),
      { numRuns: 100 },
    );
  });

  test('one who gives up in time is passed by', async () => {
    const bench = new Bench(outerTurn('lock', ALL), ALL);
    await bench.enter(ALL, false);
    const waiter = new Waiter(bench.clock, ALL, { timeoutMs: 50, signal: undefined });
    floorOf(bench.outer).enter(waiter, COUNT);
    const refused = expect(waiter.promise).rejects.toThrow('"order:42" was not free within 50 ms');
    await bench.clock.advance(50);
    await refused;
    await bench.enter(ALL, false);
    await bench.expectRule();
    await bench.release(bench.inside[0]!);
    await bench.expectRule();
  });

  test('nobody is let in to a turn that is over by the clock, though no timer has run', async () => {
    const outer = outerTurn('lock', ALL);
    const clock = outer.clock as VirtualClock;
    outer.endAfter(50);
    const [first, second] = [ALL, ALL].map((weight) => {
      const waiter = new Waiter(clock, weight, { timeoutMs: undefined, signal: undefined });
      floorOf(outer).enter(waiter, COUNT);
      return waiter;
    });
    const inner = (await first!.promise)!;
    clock.stall(60);
    expect(inner.held).toBe(false);
    expect(await inner.release()).toBe(false);
    await expect(second!.promise).rejects.toBeInstanceOf(LeaseLostError);
  });

  test('when the outer hold is lost, all that is inside is lost, and nobody who waited there is served', async () => {
    const outer = outerTurn('lock', ALL);
    const clock = new VirtualClock();
    const waiters = [1, ALL, 1, ALL].map((weight) => {
      const waiter = new Waiter(clock, weight, { timeoutMs: undefined, signal: undefined });
      floorOf(outer).enter(waiter, COUNT);
      return waiter;
    });
    const served = await waiters[0]!.promise;
    void outer.lose({ reason: 'expired' });
    const outcomes = await Promise.allSettled(waiters.slice(1).map(({ promise }) => promise));
    expect(served!.state).toBe('lost');
    for (const outcome of outcomes) {
      expect(outcome.status).toBe('rejected');
      expect((outcome as PromiseRejectedResult).reason).toBeInstanceOf(LeaseLostError);
    }
    const late = new Waiter(clock, 1, { timeoutMs: undefined, signal: undefined });
    expect(() => floorOf(outer).enter(late, COUNT)).toThrow(LeaseLostError);
  });
});
