/** What those that wait watch in ZooKeeper; the waiting itself is kit/waiting-room.ts. */
import { backoff } from '../../core/backoff.js';
import type { Clock } from '../../core/clock.js';
import type { WaitingClaim } from '../../kit/ephemeral-session.js';
import type { Crowd, Verdict, ObstacleWatch } from '../../kit/waiting-room.js';
import type { ZooKeeperClient } from './client/client.js';
import { CODE, isStatus } from './client/status.js';
import { type ClaimName, nodeOf } from './keys.js';
import { heldCount, type Lines, type NodeFooting, type Obstacle, type ClaimSpot } from './protocol.js';

/** After a watch that could not be made. */
const PAUSE_MS = 20;

/** Tells once. What is gone before it can be watched has just made room. */
export function watchNode(
  { client, clock }: { readonly client: ZooKeeperClient; readonly clock: Clock },
  { path }: Obstacle,
  changed: () => void,
): ObstacleWatch<Obstacle> {
  let open = true;
  const tell = (): void => {
    if (!open) return;
    open = false;
    changed();
  };
  client.getData(path, tell).catch((error: unknown) => {
    if (isStatus(error, CODE.noNode)) tell();
    else clock.timer(backoff(clock, 0, PAUSE_MS, PAUSE_MS), tell).unref();
  });
  return {
    covers: (obstacle) => open && obstacle.path === path,
    close: () => {
      if (open) client.unwatch('data', path, tell);
      open = false;
    },
  };
}

interface PermitsSetup {
  readonly client: ZooKeeperClient;
  readonly lines: Lines;
}

/** One watch of the whole line at a time, made with each look that finds none. */
export class Permits implements Crowd<WaitingClaim<NodeFooting>, Obstacle> {
  readonly #setup: PermitsSetup;
  readonly #spot: ClaimSpot;
  readonly #changed: () => void;
  #watching = false;

  constructor(setup: PermitsSetup, spot: ClaimSpot, changed: () => void) {
    this.#setup = setup;
    this.#spot = spot;
    this.#changed = () => {
      this.#watching = false;
      changed();
    };
  }

  joined(): boolean {
    return true;
  }

  async look(waiters: ReadonlyMap<string, WaitingClaim<NodeFooting>>): Promise<Verdict<WaitingClaim<NodeFooting>>> {
    const { client } = this.#setup;
    // Who joins while we look may stand in line since a moment after that.
    const joined = [...waiters.values()];
    const claims = await this.#claims();
    const holding = new Set(claims.slice(0, heldCount(claims, this.#spot.claim.capacity)).map(({ node }) => node));
    const there = new Set(claims.map(({ node }) => node));
    const concerned = joined.filter(({ footing }) => {
      const node = nodeOf(footing.path);
      return holding.has(node) || !there.has(node);
    });
    const stats = await Promise.all(concerned.map(({ footing }) => client.exists(footing.path)));
    const isOurs = (_: unknown, at: number): boolean => stats[at]?.ephemeralOwner === client.sessionId;
    return { held: concerned.filter(isOurs), absent: concerned.filter((_, at) => !isOurs(_, at)) };
  }

  close(): void {
    if (this.#watching) this.#setup.client.unwatch('children', this.#spot.line, this.#changed);
    this.#watching = false;
  }

  async #claims(): Promise<readonly ClaimName[]> {
    const watcher = this.#watching ? undefined : this.#changed;
    this.#watching = true;
    try {
      return await this.#setup.lines.permits(this.#spot.line, watcher);
    } catch (error) {
      if (watcher) this.#watching = false;
      if (isStatus(error, CODE.noNode)) return [];
      throw error;
    }
  }
}
