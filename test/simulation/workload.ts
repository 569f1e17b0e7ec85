import {
  type AcquireOptions,
  Holdfast,
  HoldfastError,
  type Lease,
  type Lock,
  StaleTokenError,
  type WriteLease,
} from '../../src/index.js';
import { ALL } from '../../src/core/line.js';
import type { SimProcess } from './process.js';
import type { Random } from './random.js';
import type { Line, Referee } from './referee.js';

const MUTEX_A: Line = { name: 'a', capacity: ALL };
const MUTEX_B: Line = { name: 'b', capacity: ALL };
const CATALOG: Line = { name: 'catalog', capacity: ALL };
const GPU: Line = { name: 'gpu', capacity: 3 };
const LEADER: Line = { name: 'leader', capacity: ALL };

/** What the tasks of a process may know of the world around them. */
export interface Phase {
  /** Faults are over: holds are short, and everybody must be served. */
  healed: boolean;
  /** No new operation. */
  stopping: boolean;
}

/** One process's users: a few tasks that lock, work, look and let go, each in its own random way. */
export class Workload {
  readonly #process: SimProcess;
  readonly #locks: Holdfast;
  readonly #referee: Referee;
  readonly #phase: Phase;
  readonly #random: Random;

  constructor(process: SimProcess, locks: Holdfast, referee: Referee, phase: Phase) {
    this.#process = process;
    this.#locks = locks;
    this.#referee = referee;
    this.#phase = phase;
    this.#random = process.random.fork();
  }

  /** Resolves when the task has ended: after `stopping`, and after what it did is done. */
  async task(): Promise<void> {
    const operations = [
      () => this.#hold(MUTEX_A, ALL, this.#locks.mutex('a')),
      () => this.#hold(MUTEX_A, ALL, this.#locks.mutex('a')),
      () => this.#hold(MUTEX_B, ALL, this.#locks.mutex('b')),
      () => this.#tryHold(MUTEX_A, this.#locks.mutex('a')),
      () => this.#reenter(),
      () => this.#both(),
      () => this.#hold(CATALOG, 1, this.#locks.rwLock('catalog').read),
      () => this.#hold(CATALOG, 1, this.#locks.rwLock('catalog').read),
      () => this.#write(),
      () => this.#permits(),
      () => this.#lead(),
      () => this.#fenced(),
    ];
    await this.#loop(
      () => this.#random.around(500),
      () => this.#random.pick(operations)(),
    );
  }

  /** Users of one process who never let the lock go free between them: those of others must be served all the same. */
  async hotTask(reads: boolean): Promise<void> {
    const { read, write } = this.#locks.rwLock('catalog');
    const [lock, weight] = reads ? [read, 1] : [write, ALL];
    await this.#loop(
      () => (this.#phase.healed ? this.#random.between(1, 5) : 500),
      async () => {
        if (this.#phase.healed) await this.#hold(CATALOG, weight, lock, {}, reads ? 60 : 20);
      },
    );
  }

  /** An operator who takes claims away. */
  async evictOne(): Promise<void> {
    try {
      for await (const { name, claims } of this.#locks.inspect()) {
        const claim = this.#random.pick(claims);
        this.#referee.log(this.#process.name, `evicts ${claim.id} of ${name}`);
        await this.#locks.evict(name, claim.id, 'simulated');
        return;
      }
    } catch (error) {
      this.#expected(error);
    }
  }

  async #loop(pauseMs: () => number, operation: () => Promise<void>): Promise<void> {
    while (!this.#phase.stopping) {
      await this.#process.sleep(pauseMs());
      if (this.#phase.stopping) return;
      try {
        await operation();
      } catch (error) {
        this.#expected(error);
      }
    }
  }

  async #hold(
    line: Line,
    weight: number,
    lock: Lock,
    extra: AcquireOptions = {},
    meanMs = this.#holdMs(),
  ): Promise<void> {
    const lease = await this.#acquire(line, lock, { ...this.#options(), ...extra });
    await this.#workWith(line, weight, lease, meanMs);
  }

  async #tryHold(line: Line, lock: Lock): Promise<void> {
    const lease = await this.#referee.track(this.#process, `tryAcquire ${line.name}`, false, lock.tryAcquire());
    if (lease) await this.#workWith(line, ALL, lease, this.#holdMs());
  }

  async #workWith(line: Line, weight: number, lease: Lease, meanMs: number): Promise<void> {
    const held = this.#referee.granted(this.#process, line, weight, lease);
    await this.#work(lease, meanMs);
    this.#referee.letGo(line, held);
    await this.#release(lease);
  }

  /** Nested runs: granted at once with the same token, siblings one at a time, and nothing outlives the outer run. */
  async #reenter(): Promise<void> {
    const lock = this.#locks.mutex('a');
    let inside = 0;
    const inner = (outer: Lease): Promise<void> =>
      lock.run(async (lease) => {
        inside += 1;
        if (inside > 1) this.#referee.violate(`${this.#process.name}: two siblings inside one holder of a`);
        if (lease.token !== outer.token)
          this.#referee.violate(`${this.#process.name}: nested run of a has another token`);
        await this.#process.sleep(this.#random.between(1, 20));
        inside -= 1;
      });
    const run = lock.run(this.#options(), async (lease) => {
      const held = this.#referee.granted(this.#process, MUTEX_A, ALL, lease);
      const settled = Promise.allSettled([inner(lease), inner(lease)]);
      // Sometimes they are left behind: the outer run must wait for them.
      if (this.#random.chance(0.7)) await settled;
      this.#referee.letGo(MUTEX_A, held);
    });
    await this.#referee.track(this.#process, 'run of a', true, run);
    if (inside > 0) this.#referee.violate(`${this.#process.name}: an inner lease of a outlived the outer run`);
  }

  async #both(): Promise<void> {
    const a = this.#locks.mutex('a');
    const b = this.#locks.mutex('b');
    const run = this.#locks.all([b, a]).run(this.#options(), async (leases) => {
      const heldA = this.#referee.granted(this.#process, MUTEX_A, ALL, leases.of(a));
      const heldB = this.#referee.granted(this.#process, MUTEX_B, ALL, leases.of(b));
      await this.#process.sleep(this.#random.around(this.#holdMs()));
      this.#referee.letGo(MUTEX_A, heldA);
      this.#referee.letGo(MUTEX_B, heldB);
    });
    await this.#referee.track(this.#process, 'run of a and b', true, run);
  }

  async #write(): Promise<void> {
    const { write } = this.#locks.rwLock('catalog');
    const lease = (await this.#acquire(CATALOG, write, this.#options())) as WriteLease;
    if (this.#random.chance(0.5)) return this.#workWith(CATALOG, ALL, lease, this.#holdMs());
    const held = this.#referee.granted(this.#process, CATALOG, ALL, lease);
    await this.#work(lease, this.#holdMs());
    this.#referee.letGo(CATALOG, held);
    const reader = await this.#referee.track(this.#process, 'downgrade of catalog', false, lease.downgrade());
    if (reader.held) await this.#workWith(CATALOG, 1, reader, this.#holdMs());
    else await this.#release(reader);
  }

  async #permits(): Promise<void> {
    const permits = 1 + this.#random.int(GPU.capacity);
    const semaphore = this.#locks.semaphore(GPU.name, GPU.capacity);
    await this.#hold(GPU, permits, semaphore, { permits });
  }

  async #lead(): Promise<void> {
    const campaign = this.#locks.election('leader').campaign({ value: this.#process.name });
    const term = await this.#referee.track(this.#process, 'campaign', true, campaign);
    await this.#workWith(LEADER, ALL, term, this.#holdMs());
  }

  /** Who holds must never be refused by the fence. */
  async #fenced(): Promise<void> {
    const lease = await this.#acquire(MUTEX_A, this.#locks.mutex('a'), this.#options());
    const held = this.#referee.granted(this.#process, MUTEX_A, ALL, lease);
    const register = this.#locks.register('a');
    try {
      const seen = await register.get(lease);
      await register.set(`${Number(seen?.value ?? 0) + 1}`, lease);
    } catch (error) {
      if (error instanceof StaleTokenError && lease.held) {
        this.#referee.violate(`${this.#process.name} holds a, and its token was refused: ${error.message}`);
      }
      this.#expected(error);
    }
    this.#referee.letGo(MUTEX_A, held);
    await this.#release(lease);
  }

  /** An acquire that may time out or be aborted, at any point. */
  async #acquire(line: Line, lock: Lock, options: AcquireOptions): Promise<Lease> {
    const waits = options.timeout === undefined;
    return this.#referee.track(this.#process, `acquire ${line.name}`, waits, lock.acquire(options));
  }

  async #release(lease: Lease): Promise<void> {
    const released = await this.#referee.track(this.#process, `release ${lease.name}`, false, lease.release());
    if (lease.held) this.#referee.violate(`${this.#process.name} released ${lease.name} and still holds it`);
    if (released && lease.state === 'lost') this.#referee.violate(`release of a lost lease of ${lease.name} said true`);
  }

  /** Works for a while, looking at `held` as users should, and stops when it is false. */
  async #work(lease: Lease, meanMs: number): Promise<void> {
    const until = this.#process.clock.now() + this.#random.around(meanMs);
    while (this.#process.clock.now() < until) {
      await this.#process.sleep(Math.min(100, Math.max(1, until - this.#process.clock.now())));
      if (!lease.held && lease.state === 'lost') return;
    }
  }

  #options(): AcquireOptions {
    const dice = this.#random.next();
    if (dice < 0.5) return {};
    if (dice < 0.75) return { timeout: Math.ceil(this.#random.around(600)) };
    const abort = new AbortController();
    void this.#process.sleep(this.#random.around(300)).then(() => abort.abort(ABORTED));
    return { signal: abort.signal };
  }

  #holdMs(): number {
    return this.#phase.healed ? 20 : this.#random.pick([5, 60, 60, 400]);
  }

  /** Errors that a bad day may bring; anything else is a bug. */
  #expected(error: unknown): void {
    if (error === ABORTED) return;
    if (error instanceof HoldfastError && EXPECTED.has(error.code)) return;
    this.#referee.violate(
      `${this.#process.name}: unexpected ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
    );
  }
}

const ABORTED = new Error('aborted by the simulation');
const EXPECTED = new Set(['HOLDFAST_TIMEOUT', 'HOLDFAST_LOST', 'HOLDFAST_ENGINE', 'HOLDFAST_STALE_TOKEN']);
