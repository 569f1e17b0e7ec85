/**
 * The command, and all that it started, must be gone before the lock is.
 *
 *     validity  ├──────── held ────────┼──── jeopardy ────┼─ grace ─┼ margin ┤ over: another may be granted
 *                                                         SIGTERM   SIGKILL
 *
 * An eviction comes without warning, and the claim leaves the line as soon as everybody who listens to `lease.signal`
 * has been told. So the listener here does not come back before they are gone: it blocks this process, which has nothing
 * else to do, for as long as the grace lasts and never beyond the validity that it last saw.
 */
import { tracingChannel } from 'node:diagnostics_channel';
import type { Lease, LeaseLostError } from '../index.js';
import type { Family } from './family.js';
import { quote } from './text.js';

/** How long to look for the end of what was killed. Longer only takes what hangs inside the kernel. */
const KILLED_MS = 1_000;
/** How often to look for those whose parents may end before them. */
const REMEMBER_MS = 1_000;
const JUDGE_MS = 10;

/** What is wrong with the engine, as the last beat that failed has told. */
const beats = tracingChannel<unknown, { readonly error?: unknown }>('holdfast:beat');

export interface GuardOptions {
  readonly ttlMs: number;
  readonly graceMs: number;
}

/** What came of the command when its lock was lost. */
export interface Stopped {
  readonly why: string;
  /** Those who could not be stopped, and go on without the lock. */
  readonly left: readonly number[];
}

export class ChildGuard {
  readonly #lease: Lease;
  readonly #family: Family;
  readonly #graceMs: number;
  /** The SIGKILL is sent this long before validity ends. */
  readonly #marginMs: number;
  readonly #lookMs: number;
  #validUntil = 0;
  #rememberAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #stopping: Promise<void> | undefined;
  #why: string | undefined;
  #trouble = '';
  #left: readonly number[] = [];
  #giveUp: () => void = () => {};
  /** Resolves when the lock is lost and something of the command goes on: the command itself may never end. */
  readonly unstoppable = new Promise<undefined>((resolve) => (this.#giveUp = () => resolve(undefined)));

  constructor(lease: Lease, family: Family, { ttlMs, graceMs }: GuardOptions) {
    this.#lease = lease;
    this.#family = family;
    this.#marginMs = ttlMs / 20;
    this.#graceMs = graceMs;
    this.#lookMs = ttlMs / 50;
    beats.error.subscribe(this.#onFailedBeat);
    lease.signal.addEventListener('abort', this.#onLost);
    if (lease.signal.aborted) this.#onLost();
    else this.#look();
  }

  /**
   * Until nobody of the family is left, with the lock kept. A grace after they have been asked to end they are killed. What can't be
   * killed keeps the lock, too: `tell` hears of it once. Sooner only if the lock is lost.
   */
  async outlast(
    { child, graceMs }: { child: { readonly asked: boolean }; graceMs: number },
    tell: (left: readonly number[]) => void,
  ): Promise<void> {
    const family = this.#family;
    let killAt = Number.POSITIVE_INFINITY;
    let told = false;
    for (;;) {
      if (child.asked) killAt = Math.min(killAt, performance.now() + graceMs);
      if (this.#why !== undefined || (await family.goneBy(performance.now() + this.#lookMs))) return;
      if (performance.now() < killAt) continue;
      family.signal('SIGKILL');
      if (performance.now() < killAt + KILLED_MS || told) continue;
      told = true;
      tell(family.pids);
    }
  }

  /** After a stop of this process: whether the lock is still ours. A machine that was suspended learns that with a beat. */
  async judge(): Promise<boolean> {
    while (this.#why === undefined && !this.#lease.held) await new Promise((resolve) => setTimeout(resolve, JUDGE_MS));
    return this.#why === undefined;
  }

  /** After the command has ended. Undefined if it was not stopped. */
  async end(): Promise<Stopped | undefined> {
    clearTimeout(this.#timer);
    await this.#stopping;
    this.#lease.signal.removeEventListener('abort', this.#onLost);
    beats.error.unsubscribe(this.#onFailedBeat);
    if (this.#why === undefined) return undefined;
    return { why: this.#why, left: this.#left };
  }

  #look(): void {
    const { remaining, state } = this.#lease;
    // Asking may have found that it is over, and then the listener has done everything.
    if (this.#why !== undefined) return;
    this.#validUntil = performance.now() + remaining;
    if (remaining <= this.#marginMs || (state === 'jeopardy' && remaining <= this.#graceMs)) {
      this.#why = `${quote(this.#lease.name)} was about to be lost, because the engine could not be reached${this.#trouble}`;
      this.#stopping = this.#stop();
      return;
    }
    this.#remember();
    const ms = Math.max(1, Math.min(this.#lookMs, remaining - this.#graceMs));
    this.#timer = setTimeout(() => this.#look(), state === 'jeopardy' ? ms : this.#lookMs);
  }

  #remember(): void {
    if (performance.now() < this.#rememberAt) return;
    this.#rememberAt = performance.now() + REMEMBER_MS;
    this.#family.remember();
  }

  async #stop(): Promise<void> {
    this.#family.signal('SIGTERM');
    if (await this.#family.goneBy(this.#validUntil - this.#marginMs)) return;
    const kill = (): void => this.#family.signal('SIGKILL');
    // Should the engine be back, what can't be killed keeps the lock.
    let killed = await this.#family.goneBy(performance.now() + KILLED_MS, kill);
    while (!killed && this.#lease.remaining > 0)
      killed = await this.#family.goneBy(performance.now() + this.#lookMs, kill);
    if (!killed) this.#leave();
  }

  /** Those who could not be killed. */
  #leave(): void {
    this.#left = this.#family.pids;
    this.#giveUp();
  }

  readonly #onFailedBeat = (message: unknown): void => {
    const { error } = message as { readonly error?: unknown };
    if (error instanceof Error) this.#trouble = `: ${error.message.replace(/\.$/, '')}`;
  };

  readonly #onLost = (): void => {
    const { reason, message } = this.#lease.signal.reason as LeaseLostError;
    const evicted = reason === 'evicted';
    this.#why ??= reason === 'expired' ? `${message}${this.#trouble && ` The engine said${this.#trouble}`}` : message;
    if (evicted) {
      this.#family.signal('SIGTERM');
      const killAt = Math.min(performance.now() + this.#graceMs, this.#validUntil - this.#marginMs);
      if (this.#family.goneBySync(killAt)) return;
    }
    // After an eviction the lock is ours for as long as we do not let go: what can't be killed has it until then.
    const until = performance.now() + KILLED_MS;
    const at = evicted ? Math.max(until, this.#validUntil) : until;
    if (!this.#family.goneBySync(at, () => this.#family.signal('SIGKILL'))) this.#leave();
  };
}
