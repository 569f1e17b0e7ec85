/**
 * The child must be gone before the lock is.
 *
 *     validity  ├──────── held ────────┼──── jeopardy ────┼─ grace ─┼ margin ┤ over: another may be granted
 *                                                         SIGTERM   SIGKILL
 *
 * An eviction comes without warning, and the claim leaves the line as soon as everybody who listens to `lease.signal`
 * has been told. So the listener here does not come back before the child is gone: it blocks this process, which has
 * nothing else to do, for as long as the grace lasts and never beyond the validity that it last saw.
 */
import type { Lease, LeaseLostError } from '../index.js';
import type { ProcessGroup } from './process-group.js';
import { quote } from './text.js';

/** How long to look for the end of what was killed. Longer only takes what hangs inside the kernel. */
const KILLED_MS = 1_000;

export interface GuardOptions {
  readonly ttlMs: number;
  readonly graceMs: number;
}

export class Guard {
  readonly #lease: Lease;
  readonly #group: ProcessGroup;
  readonly #graceMs: number;
  /** The SIGKILL is sent this long before validity ends. */
  readonly #marginMs: number;
  readonly #lookMs: number;
  #validUntil = 0;
  #timer: NodeJS.Timeout | undefined;
  #stopping: Promise<void> | undefined;
  #why: string | undefined;

  constructor(lease: Lease, group: ProcessGroup, { ttlMs, graceMs }: GuardOptions) {
    this.#lease = lease;
    this.#group = group;
    this.#marginMs = ttlMs / 20;
    this.#graceMs = graceMs;
    this.#lookMs = ttlMs / 50;
    lease.signal.addEventListener('abort', this.#onLost);
    if (lease.signal.aborted) this.#onLost();
    else this.#look();
  }

  /** After the child has ended. Why it was stopped, once all of its group are gone; undefined if it was not. */
  async end(): Promise<string | undefined> {
    clearTimeout(this.#timer);
    await this.#stopping;
    this.#lease.signal.removeEventListener('abort', this.#onLost);
    return this.#why;
  }

  #look(): void {
    const { remaining, state } = this.#lease;
    // Asking may have found that it is over, and then the listener has done everything.
    if (this.#why !== undefined) return;
    this.#validUntil = performance.now() + remaining;
    if (remaining <= this.#marginMs || (state === 'jeopardy' && remaining <= this.#graceMs)) {
      this.#why = `${quote(this.#lease.name)} was about to be lost, because the engine could not be reached`;
      this.#stopping = this.#stop();
      return;
    }
    const ms = Math.max(1, Math.min(this.#lookMs, remaining - this.#graceMs));
    this.#timer = setTimeout(() => this.#look(), state === 'jeopardy' ? ms : this.#lookMs);
  }

  async #stop(): Promise<void> {
    this.#group.signal('SIGTERM');
    if (await this.#group.goneBy(this.#validUntil - this.#marginMs)) return;
    this.#group.signal('SIGKILL');
    await this.#group.goneBy(performance.now() + KILLED_MS);
  }

  readonly #onLost = (): void => {
    const { reason, message } = this.#lease.signal.reason as LeaseLostError;
    this.#why ??= message;
    if (reason === 'evicted') {
      this.#group.signal('SIGTERM');
      const killAt = Math.min(performance.now() + this.#graceMs, this.#validUntil - this.#marginMs);
      if (this.#group.goneBySync(killAt)) return;
    }
    this.#group.signal('SIGKILL');
    this.#group.goneBySync(performance.now() + KILLED_MS);
  };
}
