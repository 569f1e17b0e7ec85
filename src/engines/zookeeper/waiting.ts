/**
 * Claims that wait. Each watches what stands in its way, and looks again when that changes. The permits of one semaphore
 * share one watch and one look, however many of ours wait: every change there concerns all of them.
 *
 * A look that fails is repeated until it succeeds: nobody else would tell us.
 */
import { backoff } from '../../core/backoff.js';
import type { Clock } from '../../core/clock.js';
import type { ZooKeeperClient } from './client/client.js';
import { CODE, isStatus } from './client/status.js';
import { type Found, heldCount, type Lines, type Obstacle, type Spot, type Standing } from './lines.js';
import { type ClaimName, nodeOf } from './paths.js';

export interface Waiter {
  readonly spot: Spot;
  readonly standing: Standing;
  granted(): void;
  /** Its node is not there any more, or not ours. */
  vanished(): void;
}

/** How many of those that wait alone look again with each beat, though nothing was told. */
const CHECKED_AT_ONCE = 16;

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1_000;

interface Setup {
  readonly lines: Lines;
  readonly client: ZooKeeperClient;
  readonly clock: Clock;
}

export class WaitingRoom {
  readonly #setup: Setup;
  /** By the node of the line. */
  readonly #semaphores = new Map<string, SharedWait>();
  /** Those that looked longest ago first. */
  readonly #alone = new Set<LoneWait>();

  constructor(setup: Setup) {
    this.#setup = setup;
  }

  /** @returns how to stop waiting. */
  wait(waiter: Waiter, obstacle: Obstacle): () => void {
    const { spot } = waiter;
    if (spot.claim.line.kind === 'semaphore') return this.#semaphore(spot).join(waiter);
    const wait: LoneWait = new LoneWait(this.#setup, waiter, () => this.#alone.delete(wait));
    this.#alone.add(wait);
    wait.follow(obstacle);
    return () => wait.stop();
  }

  /** Looks for what may not have been told. */
  check(): void {
    for (const wait of [...this.#alone].slice(0, CHECKED_AT_ONCE)) {
      this.#alone.delete(wait);
      this.#alone.add(wait);
      wait.look();
    }
    for (const shared of this.#semaphores.values()) shared.look();
  }

  #semaphore({ line, claim }: Spot): SharedWait {
    const known = this.#semaphores.get(line);
    if (known) return known;
    const shared = new SharedWait(this.#setup, line, claim.capacity, () => this.#semaphores.delete(line));
    this.#semaphores.set(line, shared);
    return shared;
  }
}

/** A mutex, a reader or a writer behind the one claim that is in its way. */
class LoneWait {
  readonly #setup: Setup;
  readonly #waiter: Waiter;
  readonly #over: () => void;
  readonly #changed = (): void => {
    this.#watched = undefined;
    this.look();
  };
  /** The node that is watched, or is about to be. */
  #watched: string | undefined;
  #looking = false;
  #lookAgain = false;
  #stopped = false;

  constructor(setup: Setup, waiter: Waiter, over: () => void) {
    this.#setup = setup;
    this.#waiter = waiter;
    this.#over = over;
  }

  /** What is gone before it can be watched has just made room. */
  follow({ path }: Obstacle): void {
    if (this.#stopped || this.#watched === path) return;
    this.#unwatch();
    this.#watched = path;
    this.#setup.client.getData(path, this.#changed).catch((error: unknown) => {
      if (this.#watched !== path) return;
      this.#watched = undefined;
      if (isStatus(error, CODE.noNode)) this.look();
      else later(this.#setup.clock, 0, () => this.look());
    });
  }

  look(attempt = 0): void {
    if (this.#stopped) return;
    this.#lookAgain = this.#looking;
    if (this.#looking) return;
    this.#looking = true;
    const { spot, standing } = this.#waiter;
    this.#setup.lines.look(spot, standing).then(
      (found) => this.#looked(found),
      () =>
        later(this.#setup.clock, attempt, () => {
          this.#looking = false;
          this.look(attempt + 1);
        }),
    );
  }

  stop(): void {
    this.#stopped = true;
    this.#unwatch();
    this.#over();
  }

  #unwatch(): void {
    if (this.#watched !== undefined) this.#setup.client.unwatch('data', this.#watched, this.#changed);
    this.#watched = undefined;
  }

  #looked(found: Found): void {
    this.#looking = false;
    if (this.#stopped) return;
    if (found.state === 'waiting') {
      this.follow(found.obstacle);
      if (this.#lookAgain) this.look();
      return;
    }
    this.stop();
    if (found.state === 'held') this.#waiter.granted();
    else this.#waiter.vanished();
  }
}

class SharedWait {
  readonly #setup: Setup;
  readonly #line: string;
  readonly #capacity: number;
  readonly #empty: () => void;
  /** By the name of their nodes. */
  readonly #waiters = new Map<string, Waiter>();
  readonly #changed = (): void => {
    this.#watching = false;
    this.look();
  };
  #watching = false;
  #looking = false;
  #lookAgain = false;

  constructor(setup: Setup, line: string, capacity: number, empty: () => void) {
    this.#setup = setup;
    this.#line = line;
    this.#capacity = capacity;
    this.#empty = empty;
  }

  /** Room that was made after it entered may have been told before we knew that it waits. */
  join(waiter: Waiter): () => void {
    const node = nodeOf(waiter.standing.path);
    this.#waiters.set(node, waiter);
    this.look();
    return () => this.#leave(node);
  }

  look(attempt = 0): void {
    this.#lookAgain = this.#looking;
    if (this.#looking || this.#waiters.size === 0) return;
    this.#looking = true;
    this.#look().then(
      () => {
        this.#looking = false;
        if (this.#lookAgain) this.look();
      },
      () =>
        later(this.#setup.clock, attempt, () => {
          this.#looking = false;
          this.look(attempt + 1);
        }),
    );
  }

  async #look(): Promise<void> {
    const { lines, client } = this.#setup;
    // Who joins while we look may stand in line since a moment after that.
    const joined = [...this.#waiters];
    const claims = await this.#claims(lines);
    const held = new Set(claims.slice(0, heldCount(claims, this.#capacity)).map(({ node }) => node));
    const there = new Set(claims.map(({ node }) => node));
    const concerned = joined.filter(([node]) => held.has(node) || !there.has(node));
    const stats = await Promise.all(concerned.map(([, { standing }]) => client.exists(standing.path)));
    for (const [at, [node, waiter]] of concerned.entries()) {
      if (this.#waiters.get(node) !== waiter) continue;
      this.#leave(node);
      if (stats[at]?.ephemeralOwner === client.sessionId) waiter.granted();
      else waiter.vanished();
    }
  }

  /** One watch at a time. */
  async #claims(lines: Lines): Promise<readonly ClaimName[]> {
    const watcher = this.#watching ? undefined : this.#changed;
    this.#watching = true;
    try {
      return await lines.permits(this.#line, watcher);
    } catch (error) {
      if (watcher) this.#watching = false;
      if (isStatus(error, CODE.noNode)) return [];
      throw error;
    }
  }

  #leave(node: string): void {
    this.#waiters.delete(node);
    if (this.#waiters.size > 0) return;
    if (this.#watching) this.#setup.client.unwatch('children', this.#line, this.#changed);
    this.#watching = false;
    this.#empty();
  }
}

function later(clock: Clock, attempt: number, run: () => unknown): void {
  clock.timer(backoff(clock, attempt, FIRST_PAUSE_MS, LONGEST_PAUSE_MS), run).unref();
}
