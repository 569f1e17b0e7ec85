import type { Clock, Timer } from '../core/clock.js';
import type { Fence, LineRef } from '../core/engine.js';
import { ConfigError, LeaseLostError, type Loss, quote } from '../core/errors.js';
import { PRESENT, type Presentable } from '../core/fence.js';
import { ALL } from '../core/line.js';
import { releaseIsObserved, traceRelease } from '../core/telemetry.js';
import type { Turn, TurnState } from '../core/turn.js';

/** What you hold after a grant. `await using lease = …` releases it at the end of the block. */
export interface Lease extends AsyncDisposable {
  /** The lock's name. */
  readonly name: string;
  /** The fencing token: of two grants that may not coexist the later has the larger. Compare it as a bigint. */
  readonly token: bigint;
  readonly state: TurnState;
  /** Computed now from the clock; right even after a stalled event loop. Check it before each side effect. */
  readonly held: boolean;
  /** Milliseconds of validity left; 0 after release. */
  readonly remaining: number;
  /** Aborts with a LeaseLostError when the lease is lost. Made on first use. */
  readonly signal: AbortSignal;
  /** Throws a LeaseLostError unless `held`. */
  assertHeld(): void;
  /** True, or false if it was lost. Never throws; a second call gives the same answer. */
  release(): Promise<boolean>;
}

export interface WriteLease extends Lease {
  /** Goes on as a reader without letting a writer in between. This lease is over then; release the new one. */
  downgrade(): Promise<Lease>;
}

export class HeldLease implements WriteLease, Presentable {
  readonly token: bigint;
  readonly #ref: LineRef;
  readonly #turn: Turn;
  readonly #clock: Clock;
  #abort: AbortController | undefined;
  #maxHold: Timer | undefined;
  readonly #endsAt: number | undefined;
  #released: Promise<boolean> | undefined;

  constructor(ref: LineRef, turn: Turn, clock: Clock, maxHoldMs?: number) {
    this.token = turn.token;
    this.#ref = ref;
    this.#turn = turn;
    this.#clock = clock;
    if (maxHoldMs === undefined) return;
    this.#endsAt = clock.now() + maxHoldMs;
    this.#maxHold = clock.timer(maxHoldMs, () => turn.forfeit({ reason: 'maxHold' }));
    this.#maxHold.unref();
  }

  get name(): string {
    return this.#ref.name;
  }

  get state(): TurnState {
    return this.#turn.state;
  }

  get held(): boolean {
    return this.#turn.held;
  }

  get remaining(): number {
    return this.#turn.remainingMs;
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      const abort = new AbortController();
      this.#abort = abort;
      this.#turn.onLost = (loss) => abort.abort(this.#lost(loss));
      if (this.#turn.loss) abort.abort(this.#lost(this.#turn.loss));
    }
    return this.#abort.signal;
  }

  assertHeld(): void {
    if (!this.held) throw this.lossError();
  }

  release(): Promise<boolean> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async downgrade(): Promise<Lease> {
    const reader = await this.#turn.downgrade();
    this.#maxHold?.close();
    if (!reader) throw this.lossError();
    // Writer or reader, maxHold is how long it may be held in all.
    const leftMs = this.#endsAt === undefined ? undefined : Math.max(0, this.#endsAt - this.#clock.now());
    return new HeldLease(this.#ref, reader, this.#clock, leftMs);
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
    return this.#lost(this.#turn.loss ?? { reason: this.state === 'released' ? 'released' : 'expired' });
  }

  get turn(): Turn {
    return this.#turn;
  }

  /** What this lease may show at the register of its name. */
  fenceFor(name: string): Fence {
    if (this.name !== name) {
      throw new ConfigError(
        `The register of ${quote(name)} needs a lease of ${quote(name)}, not one of ${quote(this.name)}.`,
      );
    }
    return this[PRESENT]();
  }

  /** What this lease may show at a fence. */
  [PRESENT](): Fence {
    if (this.#ref.kind === 'semaphore') {
      throw new ConfigError(
        `A semaphore lease of ${quote(this.name)} can't open a fence: several may hold at once, so no token is the newest. Use a mutex.`,
      );
    }
    return { token: this.token, mode: this.#turn.weight === ALL ? 'write' : 'read' };
  }

  isOn(ref: LineRef): boolean {
    return this.#ref.kind === ref.kind && this.#ref.name === ref.name;
  }

  #release(): Promise<boolean> {
    this.#maxHold?.close();
    if (!releaseIsObserved()) return this.#turn.release();
    return traceRelease({ name: this.name, kind: this.#ref.kind, token: this.token }, () => this.#turn.release());
  }

  #lost(loss: Loss): LeaseLostError {
    return new LeaseLostError(this.name, loss, this.token);
  }
}

/** A lease that was made by Holdfast, with what is not public. */
export function ownLease(lease: unknown, what: string): HeldLease {
  if (lease instanceof HeldLease) return lease;
  throw new ConfigError(`${what} must be a lease that acquire() or run() gave you.`);
}
