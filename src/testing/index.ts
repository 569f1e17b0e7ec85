/**
 * For tests of code that uses locks: time by hand, a lease that is lost, a lock that somebody else has. All of it works on the
 * memory engine, so a test needs no server. See docs/testing.md.
 */
import { memory } from '../engines/memory/index.js';
import { type Clock, type EngineSource, Holdfast, type Lease, type LossReason } from '../index.js';
import { ownLease } from '../locks/lease.js';

export { type ManualClock, manualClock } from './manual-clock.js';

let spaces = 0;

/** A memory engine of its own: nothing that another test left behind is in it. Hand it to as many instances as you like. */
export function freshMemory(): EngineSource {
  spaces += 1;
  return memory(`test ${spaces}`);
}

export interface BusyOptions {
  /** The engine of the code under test. Default: `'memory:'`. */
  readonly engine?: EngineSource | string;
  /** The clock of the code under test, if it has one of its own. */
  readonly clock?: Clock;
  readonly namespace?: string;
  readonly label?: string;
}

/** A rival who holds the lock until `release`, or the end of the block. */
export interface Rival extends AsyncDisposable {
  readonly lease: Lease;
  release(): Promise<void>;
}

/**
 * Somebody else holds this mutex: another instance, as another process would be.
 *
 * @example
 * await using rival = await busy('order:42');
 * await expect(ship('order:42')).rejects.toThrow(AcquireTimeoutError);
 */
export async function busy(name: string, options: BusyOptions = {}): Promise<Rival> {
  const { engine = 'memory:', ...others } = options;
  const locks = new Holdfast(engine, { label: 'rival', ...others });
  const lease = await locks.mutex(name).acquire();
  const release = (): Promise<void> => locks.close({ drain: 0 });
  return { lease, release, [Symbol.asyncDispose]: release };
}

/**
 * Takes a lease away, as if the engine had said so: when this returns it is lost, and its signal aborted. Another may have the
 * lock then.
 *
 * @param reason what the LeaseLostError says. Default: `'session'`, as after a stall that was longer than the ttl.
 *
 * @example
 * lose(lease);
 * expect(lease.signal.aborted).toBe(true);
 */
export function lose(lease: Lease, reason: Exclude<LossReason, 'released'> = 'session'): void {
  ownLease(lease, 'lease').turn.forfeit({ reason });
}
