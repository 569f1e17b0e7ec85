/** The locks that a worker can work on: ours, and the naive one that is the negative control. */
import { setTimeout as sleep } from 'node:timers/promises';
import { AcquireTimeoutError, Holdfast, type Lease } from 'holdfast';
import type { Mode } from './history.js';
import type { Request, Response } from './resource.js';
import { PERMITS, type WorkerSetup } from './worker-setup.js';

export interface Want {
  readonly name: string;
  readonly mode: Mode;
  /** The id of the acquire: what `inspect` shows. */
  readonly label: string;
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  readonly permits: number;
}

export interface HeldLock {
  /** Absent where a library has none. */
  readonly token: bigint | undefined;
  readonly held: boolean;
  onLost(tell: (reason: string) => void): void;
  /** False: it was lost. */
  release(): Promise<boolean>;
}

export interface TestLocks {
  /** Undefined: busy. */
  acquire(want: Want): Promise<HeldLock | undefined>;
  close(): Promise<void>;
}

export class HoldfastLocks implements TestLocks {
  readonly #locks: Holdfast;

  constructor({ url, namespace, ttlMs, worker }: WorkerSetup) {
    // Each waiter stands in line by itself, so that the order of waiters can be judged.
    this.#locks = new Holdfast(url, { ttl: ttlMs, namespace, label: worker, cohort: false });
  }

  async acquire(want: Want): Promise<HeldLock | undefined> {
    try {
      const lease = await this.#take(want);
      return lease && new HoldfastLease(lease);
    } catch (error) {
      if (error instanceof AcquireTimeoutError) return undefined;
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#locks.close();
  }

  #take({ name, mode, label, timeoutMs, signal, permits }: Want): Promise<Lease | undefined> {
    const options = {
      label,
      ...(timeoutMs !== undefined && { timeout: timeoutMs }),
      ...(signal && { signal }),
    };
    if (mode === 'read') return this.#locks.rwLock(name).read.acquire(options);
    if (mode === 'write') return this.#locks.rwLock(name).write.acquire(options);
    if (mode === 'semaphore') return this.#locks.semaphore(name, PERMITS).acquire({ ...options, permits });
    if (mode === 'election') return this.#locks.election(name).campaign({ ...options, value: label });
    return this.#locks.mutex(name).acquire(options);
  }

  /** Inside of a run of its own, so that what is called there is re-entrant. */
  reentrant(name: string, label: string, work: (inner: HeldLock) => Promise<void>): Promise<void> {
    const lock = this.#locks.mutex(name);
    return lock.run({ label }, async () => {
      const lease = await lock.acquire();
      await work(new HoldfastLease(lease));
    });
  }
}

class HoldfastLease implements HeldLock {
  readonly #lease: Lease;

  constructor(lease: Lease) {
    this.#lease = lease;
  }

  get token(): bigint {
    return this.#lease.token;
  }

  get held(): boolean {
    return this.#lease.held;
  }

  onLost(tell: (reason: string) => void): void {
    this.#lease.signal.addEventListener('abort', () => tell((this.#lease.signal.reason as Error).message));
  }

  release(): Promise<boolean> {
    return this.#lease.release();
  }
}

/** As it is written again and again: set if absent, with an expiry; nobody looks whether it has expired meanwhile. */
export class NaiveLocks implements TestLocks {
  readonly #setup: WorkerSetup;
  readonly #ask: (request: Request) => Promise<Response>;

  constructor(setup: WorkerSetup, ask: (request: Request) => Promise<Response>) {
    this.#setup = setup;
    this.#ask = ask;
  }

  async acquire({ name, label, timeoutMs, signal }: Want): Promise<HeldLock | undefined> {
    const end = performance.now() + (timeoutMs ?? Number.POSITIVE_INFINITY);
    for (;;) {
      signal?.throwIfAborted();
      const answer = await this.#ask({ ask: 'take', name, owner: label, ttlMs: this.#setup.ttlMs });
      if (answer.ok) return this.#lease(name, label, BigInt(answer.token!));
      if (performance.now() >= end) return undefined;
      await sleep(5);
    }
  }

  async close(): Promise<void> {}

  #lease(name: string, owner: string, token: bigint): HeldLock {
    return {
      token,
      held: true,
      onLost: () => {},
      release: async () => (await this.#ask({ ask: 'drop', name, owner })).ok,
    };
  }
}
