/** Clients that take a lock again and again, each with an instance and connections of its own, as processes have. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Holdfast } from '../../../src/index.js';
import { eventually } from '../../servers/wait.js';
import type { Referee } from './clients-referee.js';

const HOLD_MS = 5;

export class Workers {
  readonly #served: number[];
  readonly #inside = new Map<string, number>();
  readonly #done: Promise<void[]>;
  #stopped = false;
  /** The most that held one lock at once, counted by themselves. */
  mostInside = 0;

  constructor(instances: readonly Holdfast[], names: readonly string[], referee: Referee) {
    this.#served = instances.map(() => 0);
    this.#done = Promise.all(instances.map((locks, worker) => this.#work(locks, worker, names, referee)));
    // Who waits for them hears of it; until then it is not unhandled.
    this.#done.catch(() => undefined);
  }

  get served(): number {
    return this.#served.reduce((sum, times) => sum + times, 0);
  }

  /** Everybody gets every lock once more from now on. Fails at once if one of them has failed. */
  async servedAgain(): Promise<void> {
    const before = [...this.#served];
    const again = eventually('everybody is served again', async () => {
      if (this.#served.some((times, worker) => times <= before[worker]!))
        throw new Error(`served ${this.#served.join()}, before ${before.join()}`);
    });
    await Promise.race([again, this.#done]);
  }

  /** Rejects if one of them had an error. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#done;
  }

  async #work(locks: Holdfast, worker: number, names: readonly string[], referee: Referee): Promise<void> {
    while (!this.#stopped) {
      for (const name of names) {
        const lease = await locks.mutex(name).acquire({ timeout: '60s' });
        referee.granted(lease);
        await this.#hold(name);
        await lease.release();
      }
      this.#served[worker]! += 1;
    }
  }

  async #hold(name: string): Promise<void> {
    const inside = (this.#inside.get(name) ?? 0) + 1;
    this.#inside.set(name, inside);
    this.mostInside = Math.max(this.mostInside, inside);
    await sleep(HOLD_MS);
    this.#inside.set(name, this.#inside.get(name)! - 1);
  }
}
