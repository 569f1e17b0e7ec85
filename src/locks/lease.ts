import type { Fence, LineRef } from '../core/engine.js';
import { calling, ConfigError, LeaseLostError, type Loss, quote } from '../core/errors.js';
import { PRESENT, type Presentable, type Presented } from '../core/fence.js';
import type { Instance } from '../core/instance.js';
import { ALL } from '../core/line.js';
import { brand, isOfBrand } from '../core/one-library.js';
import { outside } from '../core/outside.js';
import { releaseIsObserved, traceRelease } from '../core/telemetry.js';
import type { Hand, Turn, TurnState } from '../core/turn.js';

/** What you hold after a grant. `await using lease = …` releases it at the end of the block. */
export interface Lease extends AsyncDisposable {
  /** The lock's name. */
  readonly name: string;
  /** The fencing token: of two grants that may not coexist the later has the larger. Compare it as a bigint. */
  readonly token: bigint;
  readonly state: 'held' | 'jeopardy' | 'lost' | 'released';
  /** Computed now from the clock; right even after a stalled event loop. Check it before each side effect. */
  readonly held: boolean;
  /** Milliseconds of validity left; 0 after release. */
  readonly remaining: number;
  /** Aborts with a LeaseLostError when the lease is lost. Made on first use. */
  readonly signal: AbortSignal;
  /**
   * For work that takes a while to stop, as a child process does. When somebody evicts the lease, `signal` aborts and `stop` is
   * called; nobody else is granted the lock before the promise has resolved, or one ttl is over. After any other loss the lock is
   * gone already, and `stop` is not called.
   *
   *     lease.onEvicted(async () => { child.kill(); await once(child, 'exit'); });
   */
  onEvicted(stop: () => PromiseLike<unknown>): void;
  /** Throws a LeaseLostError unless `held`. */
  assertHeld(): void;
  /** True, or false if it was lost. Never throws; a second call gives the same answer. */
  release(): Promise<boolean>;
}

export interface WriteLease extends Lease {
  /** Goes on as a reader without letting a writer in between. This lease is over then; release the new one. */
  downgrade(): Promise<Lease>;
}

/** @internal */
export class HeldLease implements WriteLease, Presentable {
  static {
    brand(this, 'Lease');
  }

  static [Symbol.hasInstance](value: unknown): boolean {
    return isOfBrand(this, value);
  }

  readonly token: bigint;
  readonly turn: Turn;
  readonly #instance: Instance;
  /** As what it was granted. A downgrade changes the turn's hand: then this lease is over. */
  readonly #hand: Hand;
  #abort: AbortController | undefined;
  #released: Promise<boolean> | undefined;

  constructor(instance: Instance, turn: Turn) {
    this.turn = turn;
    this.token = turn.hand.token;
    this.#hand = turn.hand;
    this.#instance = instance;
  }

  get name(): string {
    return this.turn.line.name;
  }

  get state(): TurnState {
    return this.#isCurrent ? this.turn.state : 'released';
  }

  get held(): boolean {
    return this.#isCurrent && this.turn.held;
  }

  get remaining(): number {
    return this.#isCurrent ? this.turn.remainingMs : 0;
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      const abort = new AbortController();
      this.#abort = abort;
      if (this.#isCurrent) this.turn.onLost = (loss) => outside(() => abort.abort(this.#lost(loss)));
      const loss = this.#isCurrent && !this.turn.released ? this.turn.loss : undefined;
      if (loss) abort.abort(this.#lost(loss));
    }
    return this.#abort.signal;
  }

  onEvicted(stop: () => PromiseLike<unknown>): void {
    if (typeof stop !== 'function') throw new ConfigError('onEvicted needs a function.');
    if (!this.#isCurrent) return;
    const { onEvicted: before } = this.turn;
    // A function that throws has stopped nothing.
    this.turn.onEvicted = () => Promise.all([before?.(), this.#instance.stop(this.turn, stop)]);
  }

  assertHeld(): void {
    if (!this.held) throw this.lossError();
  }

  release(): Promise<boolean> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async downgrade(): Promise<Lease> {
    if (!this.#isCurrent) throw this.lossError();
    // To JavaScript every lease has this method.
    if (this.turn.weight !== ALL)
      throw new ConfigError(
        `Only the lease of a write lock can be downgraded; this one of ${quote(this.name)} is lighter.`,
      );
    return calling(async () => {
      const reader = this.turn.downgrade();
      // Made at once: its hand is the turn's from the call on.
      const lease = new HeldLease(this.#instance, this.turn);
      // It was lost only if that happened before others could read beside it.
      this.#released ??= reader.then(
        () => true,
        () => false,
      );
      await reader;
      return lease;
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release().then(() => undefined);
  }

  toJSON(): object {
    return { name: this.name, token: this.token.toString(), state: this.state };
  }

  // --- for the rest of Holdfast ---------------------------------------------------------------------------------

  /** Why it is not held, as an error. */
  lossError(): LeaseLostError {
    return this.#isCurrent ? this.turn.lossError() : this.#lost({ reason: 'released' });
  }

  /** What this lease may show at the register of its name. */
  fenceFor(instance: Instance, name: string): Fence {
    if (this.name !== name) {
      throw new ConfigError(
        `The register of ${quote(name)} needs a lease of ${quote(name)}, not one of ${quote(this.name)}.`,
      );
    }
    if (!instance.isOnSameEngine(this.#instance)) {
      throw new ConfigError(
        `The register of ${quote(name)} needs a lease of its own engine and namespace: tokens of another say nothing here.`,
      );
    }
    return this[PRESENT]();
  }

  /** What this lease may show at a fence. */
  [PRESENT](): Presented {
    if (this.turn.line.kind === 'semaphore') {
      throw new ConfigError(
        `A semaphore lease of ${quote(this.name)} can't open a fence: several may hold at once, so no token is the newest. Use a mutex.`,
      );
    }
    return { ...this.#hand, origin: this.#instance.place };
  }

  belongsTo(instance: Instance): boolean {
    return this.#instance === instance;
  }

  isOn({ kind, name }: LineRef): boolean {
    return this.turn.line.kind === kind && this.turn.line.name === name;
  }

  get #isCurrent(): boolean {
    return this.turn.hand === this.#hand;
  }

  #release(): Promise<boolean> {
    if (!releaseIsObserved()) return this.turn.release();
    const { kind } = this.turn.line;
    return traceRelease({ name: this.name, kind, token: this.token }, () => this.turn.release());
  }

  #lost(loss: Loss): LeaseLostError {
    return new LeaseLostError(this.name, loss, this.token);
  }
}

/** A lease that was made by Holdfast, with what is not public. @internal */
export function ownLease(lease: unknown, what: string): HeldLease {
  if (lease instanceof HeldLease) return lease;
  throw new ConfigError(`${what} must be a lease that acquire() or run() gave you.`);
}
