/**
 * Claims that wait on systems where a grant is no message: who holds follows from the line, and each looks for itself.
 *
 *     wait ─▶ watches what stands in its way ── that changed ──▶ looks ─▶ holds, or its key is gone
 *                         ▲                                        │
 *                         └───────── something else does now ◀─────┘
 *
 * A mutex, a reader or a writer waits alone, behind the one claim that is in its way. The permits of one semaphore are a
 * crowd: they share one watch and one look, however many of ours wait, because every change there concerns all of them.
 *
 * What can go wrong:
 * - A look fails. It is repeated until it succeeds: nobody else would tell us.
 * - Something changes while we look. It is looked again, as the answer may be older than the change.
 * - A watch hangs and tells nothing. With each beat some of those that wait look without being told.
 * - Who was granted stops waiting once more when it leaves, when others wait there. That must not touch them.
 */
import { backoff } from '../core/backoff.js';
import type { Clock } from '../core/clock.js';

export interface Watcher {
  /** Its name in its line. */
  readonly key: string;
  /** Those with the same wait together: the permits of one semaphore. Undefined: it waits alone. */
  readonly crowd: string | undefined;
  granted(): void;
  /** Its key is not there any more, or not ours. */
  vanished(): void;
}

/** What is asked of the system. */
export interface Lookout<W extends Watcher, Obstacle> {
  look(waiter: W): Promise<Seen<Obstacle>>;
  /** Calls when the obstacle is gone or has changed; at least once, also if it was gone before. */
  watch(obstacle: Obstacle, changed: () => void): ObstacleWatch<Obstacle>;
  /** For all in the crowd of this one. Calls when anything has changed there. */
  crowd(waiter: W, changed: () => void): Crowd<W, Obstacle>;
}

export type Seen<Obstacle> =
  | { readonly state: 'held' }
  | { readonly state: 'waiting'; readonly obstacle: Obstacle }
  /** It does not stand in line. */
  | { readonly state: 'absent' };

export interface ObstacleWatch<Obstacle> {
  /** Whether it will still tell of this one, so that another watch would be one too many. */
  covers(obstacle: Obstacle): boolean;
  close(): void;
}

export interface Crowd<W extends Watcher, Obstacle> {
  /** One more waits. True: what concerns it may have been told before we knew of it. */
  joined(obstacle: Obstacle): boolean;
  /** Who of those that wait, by their keys, does so no longer. Sees to it that the next change is told. */
  look(waiters: ReadonlyMap<string, W>): Promise<Verdict<W>>;
  /** Nobody waits any more. */
  close(): void;
}

export interface Verdict<W extends Watcher> {
  readonly held: readonly W[];
  readonly absent: readonly W[];
}

/** How many of those that wait alone look again with each beat, though nothing was told. */
const CHECKED_AT_ONCE = 16;

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1_000;

export class WaitingRoom<W extends Watcher, Obstacle> {
  readonly #clock: Clock;
  readonly #lookout: Lookout<W, Obstacle>;
  readonly #crowds = new Map<string, CrowdWait<W, Obstacle>>();
  /** Those that looked longest ago first. */
  readonly #alone = new Set<LoneWait<W, Obstacle>>();

  constructor(clock: Clock, lookout: Lookout<W, Obstacle>) {
    this.#clock = clock;
    this.#lookout = lookout;
  }

  /** @returns how to stop waiting. */
  wait(waiter: W, obstacle: Obstacle): () => void {
    if (waiter.crowd !== undefined) return this.#crowd(waiter, waiter.crowd).join(waiter, obstacle);
    const over = (): unknown => this.#alone.delete(wait);
    const wait: LoneWait<W, Obstacle> = new LoneWait({ clock: this.#clock, lookout: this.#lookout, waiter, over });
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
    for (const crowd of this.#crowds.values()) crowd.look();
  }

  #crowd(waiter: W, name: string): CrowdWait<W, Obstacle> {
    const known = this.#crowds.get(name);
    if (known) return known;
    const open = (changed: () => void): Crowd<W, Obstacle> => this.#lookout.crowd(waiter, changed);
    const crowd = new CrowdWait({ clock: this.#clock, open, over: () => this.#crowds.delete(name) });
    this.#crowds.set(name, crowd);
    return crowd;
  }
}

interface LoneSetup<W extends Watcher, Obstacle> {
  readonly clock: Clock;
  readonly lookout: Lookout<W, Obstacle>;
  readonly waiter: W;
  readonly over: () => void;
}

class LoneWait<W extends Watcher, Obstacle> {
  readonly #setup: LoneSetup<W, Obstacle>;
  readonly #looking: Looking;
  #watch: ObstacleWatch<Obstacle> | undefined;
  #stopped = false;

  constructor(setup: LoneSetup<W, Obstacle>) {
    this.#setup = setup;
    this.#looking = new Looking(setup.clock, () => this.#look());
  }

  follow(obstacle: Obstacle): void {
    if (this.#watch?.covers(obstacle)) return;
    this.#watch?.close();
    this.#watch = this.#setup.lookout.watch(obstacle, () => this.look());
  }

  look(): void {
    this.#looking.start();
  }

  stop(): void {
    this.#stopped = true;
    this.#watch?.close();
    this.#setup.over();
  }

  async #look(): Promise<void> {
    if (this.#stopped) return;
    const { lookout, waiter } = this.#setup;
    const found = await lookout.look(waiter);
    if (this.#stopped) return;
    if (found.state === 'waiting') return this.follow(found.obstacle);
    this.stop();
    if (found.state === 'held') waiter.granted();
    else waiter.vanished();
  }
}

interface CrowdSetup<W extends Watcher, Obstacle> {
  readonly clock: Clock;
  readonly open: (changed: () => void) => Crowd<W, Obstacle>;
  readonly over: () => void;
}

class CrowdWait<W extends Watcher, Obstacle> {
  readonly #crowd: Crowd<W, Obstacle>;
  readonly #over: () => void;
  readonly #looking: Looking;
  readonly #waiters = new Map<string, W>();

  constructor({ clock, open, over }: CrowdSetup<W, Obstacle>) {
    this.#crowd = open(() => this.look());
    this.#over = over;
    this.#looking = new Looking(clock, () => this.#look());
  }

  join(waiter: W, obstacle: Obstacle): () => void {
    this.#waiters.set(waiter.key, waiter);
    if (this.#crowd.joined(obstacle) || this.#looking.underWay) this.look();
    return () => void this.#leave(waiter);
  }

  look(): void {
    this.#looking.start();
  }

  async #look(): Promise<void> {
    if (this.#waiters.size === 0) return;
    const { held, absent } = await this.#crowd.look(this.#waiters);
    for (const waiter of held) if (this.#leave(waiter)) waiter.granted();
    for (const waiter of absent) if (this.#leave(waiter)) waiter.vanished();
  }

  /** False: it had left before. */
  #leave(waiter: W): boolean {
    if (this.#waiters.get(waiter.key) !== waiter) return false;
    this.#waiters.delete(waiter.key);
    if (this.#waiters.size > 0) return true;
    this.#crowd.close();
    this.#over();
    return true;
  }
}

/** One look at a time, repeated while it fails, and once more if it was asked for meanwhile. */
class Looking {
  readonly #clock: Clock;
  readonly #look: () => Promise<void>;
  underWay = false;
  #again = false;

  constructor(clock: Clock, look: () => Promise<void>) {
    this.#clock = clock;
    this.#look = look;
  }

  start(attempt = 0): void {
    this.#again = this.underWay;
    if (this.underWay) return;
    this.underWay = true;
    this.#look().then(
      () => {
        this.underWay = false;
        if (this.#again) this.start();
      },
      () => {
        const pause = backoff(this.#clock, attempt, FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
        const again = (): void => {
          this.underWay = false;
          this.start(attempt + 1);
        };
        this.#clock.timer(pause, again).unref();
      },
    );
  }
}
