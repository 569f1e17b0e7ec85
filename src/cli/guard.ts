/**
 * The command, and all that it started, must be gone before the lock is.
 *
 *     validity  ├──────── held ────────┼──── jeopardy ────┼─ grace ─┼ margin ┤ over: another may be granted
 *                                                         SIGTERM   SIGKILL
 *
 * An eviction comes without warning. The claim stays in line until they are gone (`lease.onEvicted`), for one ttl at most; they have
 * the grace to end by themselves, and never longer than the validity that was last seen.
 */
import { tracingChannel } from 'node:diagnostics_channel';
import type { Lease, LeaseLostError } from '../index.js';
import type { Family } from './family.js';
import { quote } from './text.js';

/** How long to look for the end of what was killed. Longer only takes what hangs inside the kernel. */
const KILLED_MS = 1_000;
/** How often to look for those whose parents may end before them. */
const REMEMBER_MS = 1_000;
const KILL_AGAIN_MS = 50;
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
  readonly #ttlMs: number;
  readonly #graceMs: number;
  /** The SIGKILL is sent this long before validity ends. */
  readonly #marginMs: number;
  readonly #lookMs: number;
  #validUntil = 0;
  #rememberAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #stopping: Promise<void> | undefined;
  #killAt = Number.POSITIVE_INFINITY;
  /** An evicted claim stands in line until then, unless all are gone before. */
  #keptUntil = 0;
  #family: Family | undefined;
  #whenWatched: (family: Family) => void = () => {};
  readonly #watched = new Promise<Family>((resolve) => (this.#whenWatched = resolve));
  #why: string | undefined;
  #trouble = '';
  #left: readonly number[] = [];
  #giveUp: () => void = () => {};
  /** Resolves when the lock is lost and something of the command goes on: the command itself may never end. */
  readonly unstoppable = new Promise<undefined>((resolve) => (this.#giveUp = () => resolve(undefined)));

  /** Before the command starts, so that an eviction is answered only when it is gone. */
  constructor(lease: Lease, { ttlMs, graceMs }: GuardOptions) {
    this.#lease = lease;
    this.#ttlMs = ttlMs;
    this.#marginMs = ttlMs / 20;
    this.#graceMs = graceMs;
    this.#lookMs = ttlMs / 50;
    beats.error.subscribe(this.#onFailedBeat);
    lease.signal.addEventListener('abort', this.#onLost);
    lease.onEvicted(this.#onEvicted);
  }

  watch(family: Family): void {
    this.#family = family;
    this.#whenWatched(family);
    this.#look();
  }

  /**
   * Until nobody of the family is left, with the lock kept. A grace after they have been asked to end they are killed. What can't be
   * killed keeps the lock, too: `tell` hears of it once. Sooner only if the lock is lost.
   */
  async outlast(
    { child, graceMs }: { child: { readonly asked: boolean }; graceMs: number },
    tell: (left: readonly number[]) => void,
  ): Promise<void> {
    const family = this.#family!;
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
      void this.#stop(this.#validUntil - this.#marginMs);
      return;
    }
    this.#remember();
    const ms = Math.max(1, Math.min(this.#lookMs, remaining - this.#graceMs));
    this.#timer = setTimeout(() => this.#look(), state === 'jeopardy' ? ms : this.#lookMs);
  }

  #remember(): void {
    if (performance.now() < this.#rememberAt) return;
    this.#rememberAt = performance.now() + REMEMBER_MS;
    this.#family!.remember();
  }

  readonly #onFailedBeat = (message: unknown): void => {
    const { error } = message as { readonly error?: unknown };
    if (error instanceof Error) this.#trouble = `: ${error.message.replace(/\.$/, '')}`;
  };

  readonly #onLost = (): void => {
    const { reason, message } = this.#lease.signal.reason as LeaseLostError;
    this.#why ??= reason === 'expired' ? `${message}${this.#trouble && ` The engine said${this.#trouble}`}` : message;
    // An eviction that is not answered yet takes nothing away.
    if (reason !== 'evicted') void this.#stop(performance.now());
  };

  readonly #onEvicted = (): Promise<void> => {
    const now = performance.now();
    this.#keptUntil = now + this.#ttlMs;
    return this.#stop(Math.min(now + this.#graceMs, this.#validUntil - this.#marginMs));
  };

  /** SIGTERM now, SIGKILL at the time given. A second call can only hasten it. */
  #stop(killAt: number): Promise<void> {
    this.#killAt = Math.min(this.#killAt, killAt);
    if (killAt <= performance.now()) this.#family?.signal('SIGKILL');
    this.#stopping ??= this.#watched.then((family) => this.#stopAll(family));
    return this.#stopping;
  }

  async #stopAll(family: Family): Promise<void> {
    if (performance.now() < this.#killAt) family.signal('SIGTERM');
    if (await family.goneBy(this.#killAt)) return;
    const until = performance.now() + KILLED_MS;
    do {
      // Again and again: one of them may have started another meanwhile.
      family.signal('SIGKILL');
      if (await family.goneBy(performance.now() + KILL_AGAIN_MS)) return;
    } while (performance.now() < until || this.#isOurs());
    this.#left = family.pids;
    this.#giveUp();
  }

  /** What can't be killed has the lock for as long as it may be: the engine may be back, or the eviction not answered yet. */
  #isOurs(): boolean {
    return this.#lease.remaining > 0 || performance.now() < this.#keptUntil;
  }
}
