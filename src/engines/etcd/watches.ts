/** What those that wait watch in etcd; the waiting itself is kit/waiting-room.ts. */
import type { WaitingClaim } from '../../kit/ephemeral-session.js';
import type { Crowd, Verdict } from '../../kit/waiting-room.js';
import type { Change, Watch, Watches, WatchTarget } from './client/watches.js';
import { claimIdIn } from './keys.js';
import { heldCount, type KeyFooting, type Lines, permitsWatch, type ClaimSpot } from './protocol.js';

interface Setup {
  readonly lines: Lines;
  readonly watches: Watches;
}

/** One watch of all that leave the semaphore, for as long as anybody waits. */
export class Permits implements Crowd<WaitingClaim<KeyFooting>, WatchTarget> {
  readonly #setup: Setup;
  readonly #spot: ClaimSpot;
  readonly #changed: () => void;
  #watch: Watch | undefined;
  /** The newest change that we heard of. */
  #heard = 0n;

  constructor(setup: Setup, spot: ClaimSpot, changed: () => void) {
    this.#setup = setup;
    this.#spot = spot;
    this.#changed = changed;
  }

  joined(target: WatchTarget): boolean {
    if (this.#watch) return this.#heard >= target.from;
    this.#follow(target);
    return false;
  }

  async look(waiters: ReadonlyMap<string, WaitingClaim<KeyFooting>>): Promise<Verdict<WaitingClaim<KeyFooting>>> {
    const { prefix, claim } = this.#spot;
    const { standings, at } = await this.#setup.lines.permits(this.#spot);
    if (!this.#watch && waiters.size > 0) this.#follow(permitsWatch(prefix, at));
    const held = standings.slice(0, heldCount(standings, claim.capacity)).flatMap(({ key, kv }) => {
      const waiter = waiters.get(claimIdIn(key.slice(prefix.length)) ?? '');
      return waiter?.footing.token === kv.createRevision ? [waiter] : [];
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
