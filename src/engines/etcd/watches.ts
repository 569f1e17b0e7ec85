/** What those that wait watch in etcd; the waiting itself is kit/waiting-room.ts. */
import type { Clock } from '../../core/clock.js';
import { type Crowd, type Verdict, type Waiter, WaitingRoom } from '../../kit/waiting-room.js';
import type { Change, Watch, Watches, WatchTarget } from './client/watches.js';
import { heldCount, type Lines, permitsWatch, type Spot } from './protocol.js';

export interface EtcdWaiter extends Waiter {
  readonly spot: Spot;
  readonly revision: bigint;
}

interface Setup {
  readonly lines: Lines;
  readonly watches: Watches;
  readonly clock: Clock;
}

export function waitingRoom(setup: Setup): WaitingRoom<EtcdWaiter, WatchTarget> {
  const { lines, watches, clock } = setup;
  return new WaitingRoom(clock, {
    look: ({ spot, revision }) => lines.look(spot, revision),
    watch: (target, changed) => {
      const watch = watches.watch(target, { changed, gap: changed });
      // After each look a new one, which begins where the look was: watches have been known to hang.
      return { covers: () => false, close: () => watch.close() };
    },
    crowd: ({ spot }, changed) => new Permits(setup, spot, changed),
  });
}

/** One watch of all that leave the semaphore, for as long as anybody waits. */
class Permits implements Crowd<EtcdWaiter, WatchTarget> {
  readonly #setup: Setup;
  readonly #spot: Spot;
  readonly #changed: () => void;
  #watch: Watch | undefined;
  /** The newest change that we heard of. */
  #heard = 0n;

  constructor(setup: Setup, spot: Spot, changed: () => void) {
    this.#setup = setup;
    this.#spot = spot;
    this.#changed = changed;
  }

  joined(target: WatchTarget): boolean {
    if (this.#watch) return this.#heard >= target.from;
    this.#follow(target);
    return false;
  }

  async look(waiters: ReadonlyMap<string, EtcdWaiter>): Promise<Verdict<EtcdWaiter>> {
    const { prefix, claim } = this.#spot;
    const { standings, at } = await this.#setup.lines.permits(prefix, claim.capacity);
    if (!this.#watch && waiters.size > 0) this.#follow(permitsWatch(prefix, at));
    const held = standings.slice(0, heldCount(standings, claim.capacity)).flatMap(({ key, kv }) => {
      const waiter = waiters.get(key);
      return waiter?.revision === kv.createRevision ? [waiter] : [];
    });
    // Only as much of the line was read as can hold: who is not in it waits on, and if it is gone the next beat says so.
    return { held, absent: [] };
  }

  close(): void {
    this.#watch?.close();
  }

  #follow(target: WatchTarget): void {
    this.#watch = this.#setup.watches.watch(target, {
      changed: (changes: readonly Change[]) => {
        for (const { kv } of changes) if (kv.modRevision > this.#heard) this.#heard = kv.modRevision;
        this.#changed();
      },
      gap: () => {
        this.#watch = undefined;
        this.#changed();
      },
    });
  }
}
