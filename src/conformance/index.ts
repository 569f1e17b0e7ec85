/**
 * What every engine must keep, as tests: the same for all, and the only tests that an engine needs of its own accord.
 *
 * The suite has no runner. It registers its cases with the caller's `test` (vitest, node:test and jest fit) and leaves
 * out what an engine's traits rule out, with the reason in the title: nothing is skipped in silence. Cases wait for
 * conditions, never for time, each in a namespace of its own, so they may run beside each other and on one server.
 */
import { type Clock, type EngineSource, Holdfast, type Timer, type Traits } from '../index.js';
import { abort } from './abort.js';
import { all } from './all.js';
import type { Case } from './case.js';
import { elections } from './elections.js';
import { exclusion } from './exclusion.js';
import { expiry } from './expiry.js';
import { idempotence } from './idempotence.js';
import { inspect } from './inspect.js';
import { lifecycle } from './lifecycle.js';
import { loss } from './loss.js';
import { names } from './names.js';
import { once } from './once.js';
import { order } from './order.js';
import { readWrite } from './read-write.js';
import { reentrancy } from './reentrancy.js';
import { registers } from './registers.js';
import { rosters } from './rosters.js';
import { semaphore } from './semaphore.js';
import { Stage, type StageSetup } from './stage.js';
import { tokens } from './tokens.js';

/** The runner's own function: `test` of vitest, node:test or jest. */
export interface TestFunction {
  (name: string, run: () => Promise<void>): unknown;
  readonly skip?: (name: string, run: () => Promise<void>) => unknown;
}

export interface ConformanceOptions {
  /** Give it a limit of a minute if the runner has a shorter one: `(name, run) => test(name, run, 60_000)`. */
  readonly test: TestFunction;
  /** What stands before every title. */
  readonly engine: string;
  /**
   * Makes the engine: called for every instance of every case, and once before, for its traits; it does no I/O. Given
   * a URL, the cases that speak to the raw engine can't run.
   */
  readonly source: () => EngineSource | string;
  /** How long a silent session lives where a case waits for its death. Default: 2 s, or the engine's shortest ttl. */
  readonly ttlMs?: number;
  /**
   * Where all time comes from: instances, raw engines, waits of the cases and their limit. Default: the real clock.
   *
   * Another one, that moves on as soon as nothing else is left to do, spares the waiting. That is only for engines that
   * live in this process and judge expiry by the clock they are given: a server's time, and packets on their way to
   * it, are nothing that such a clock knows of.
   *
   * @example
   * conformance({ test, engine: 'mine', source: () => mine(), clock: virtualClock });
   */
  readonly clock?: Clock;
}

const PROPERTIES: Readonly<Record<string, readonly Case[]>> = {
  exclusion,
  names,
  order,
  tokens,
  expiry,
  loss,
  abort,
  idempotence,
  rosters,
  reentrancy,
  'read-write': readWrite,
  semaphore,
  all,
  registers,
  elections,
  once,
  inspect,
  lifecycle,
};

/**
 * Registers all cases.
 *
 * @example
 * import { test } from 'vitest';
 * import { conformance } from 'holdfast/conformance';
 * import { memory } from 'holdfast/memory';
 *
 * conformance({ test, engine: 'memory', source: () => memory('conformance') });
 */
export function conformance({ test, engine, source, ttlMs, clock }: ConformanceOptions): void {
  const sample = source();
  const { traits } = new Holdfast(sample);
  // A server on a busy machine may take half a second for an answer, and a call has a third of the ttl.
  const shortTtlMs = ttlMs ?? Math.max(2_000, traits.minTtlMs);
  // Only for a case that hangs: on a machine with too much to do, one that takes three seconds may take twenty.
  const limitMs = 40_000 + 5 * shortTtlMs;
  // A beat comes after 0.8 of ttl/3 at the earliest: by then the case has failed.
  const longTtlMs = Math.min(600_000, 6 * limitMs);
  const setup: StageSetup = { source, traits, shortTtlMs, longTtlMs, ...(clock && { clock }) };
  const left: string[] = [];
  for (const [property, cases] of Object.entries(PROPERTIES)) {
    for (const one of cases) {
      const title = `${engine}: ${property}: ${one.name}`;
      const reason = whyNot(one, traits, sample);
      if (reason === undefined) test(title, () => perform(one, setup, limitMs));
      else if (test.skip) test.skip(`${title} (not here: ${reason})`, async () => {});
      else left.push(`${property}: ${one.name} (${reason})`);
    }
  }
  if (left.length > 0) test(`${engine}: ${left.length} cases can’t run here: ${left.join('; ')}`, async () => {});
}

function whyNot({ needs, protocol }: Case, traits: Traits, sample: EngineSource | string): string | undefined {
  if (protocol && typeof sample === 'string') return 'a URL hides the raw engine';
  return needs?.(traits);
}

/** Runs a case, closes everything, and looks whether anything is left: nothing may be orphaned, whatever the case was. */
async function perform(one: Case, setup: StageSetup, limitMs: number): Promise<void> {
  const stage = new Stage(setup);
  let timer: Timer | undefined;
  const tooLate = new Promise<never>((_resolve, reject) => {
    timer = stage.timer(limitMs, () => {
      reject(new Error(`Not within ${limitMs} ms: ${stage.awaited ?? 'the case'}.`));
    });
  });
  try {
    await Promise.race([one.run(stage).then(() => stage.strike()), tooLate]);
  } catch (error) {
    // What went wrong first is what matters; a failed case may also be unable to close.
    await Promise.race([stage.close().catch(() => {}), tooLate.catch(() => {})]);
    throw error;
  } finally {
    timer?.close();
  }
}
