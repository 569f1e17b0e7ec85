import { type Duration, parseDuration, show } from '../core/duration.js';
import { ClosedError, ConfigError, EngineError, LeaseLostError } from '../core/errors.js';
import { type Instance, lineKey, type Target } from '../core/instance.js';
import { ALL } from '../core/line.js';
import { checkName } from '../core/names.js';
import { Frame, taskForRun } from '../core/reentrancy.js';
import { withTokenAsText } from '../core/view.js';
import { HeldLease, type Lease } from './lease.js';
import { checkSignal } from './lock.js';
import { checkRegisterValue } from './register.js';
import { runInside } from './run.js';

/** A leader's time in office: a lease whose token grows with every leader. */
export type Term = Lease;

export interface CampaignOptions {
  /** What observers see of the leader: an address, a version. Default: an empty string. */
  readonly value?: string;
  /** Cancels the wait only. */
  readonly signal?: AbortSignal;
  /** How long to wait for office. Default: for ever. */
  readonly timeout?: Duration;
  readonly label?: string;
}

export interface Leader {
  readonly value: string;
  readonly token: bigint;
  readonly label: string;
}

/** One leader at a time. Candidates stand in the line of the lock with this name, so a mutex of it waits for them. */
export class Election {
  readonly name: string;
  readonly #instance: Instance;
  readonly #target: Target;

  constructor(instance: Instance, name: string) {
    const ref = { kind: 'lock', name: checkName(name) } as const;
    this.#instance = instance;
    this.name = name;
    this.#target = { ref, key: lineKey(ref), capacity: ALL, cohort: false, reentrant: false };
  }

  /** Waits for office. Resign with `term.release()`. */
  async campaign(options: CampaignOptions = {}): Promise<Term> {
    return this.#campaign(options);
  }

  /**
   * Leads with `work` until it resolves. When the term is lost, `term.signal` aborts; once `work` has settled, it
   * campaigns again. So `work` never runs twice at once here, and never without a term. Its own error ends it.
   */
  async lead<T>(
    ...args: [work: (term: Term) => T | PromiseLike<T>] | [CampaignOptions, (term: Term) => T | PromiseLike<T>]
  ): Promise<T> {
    const [options, work] = args.length === 1 ? [{}, args[0]] : args;
    if (typeof work !== 'function') throw new ConfigError(`lead needs a function to run; got ${show(work)}.`);
    for (;;) {
      const task = taskForRun();
      const term = await this.#campaign(options, task);
      const frame = new Frame(this.#instance, this.#target.key, term.turn, task);
      try {
        return await runInside(this.#instance, [frame], () => work(term), { yields: true });
      } catch (error) {
        if (!tellsLoss(error, term)) throw error;
        // Also where the code around it may still acquire: the next term would be over before it began.
        if (this.#instance.closing) throw new ClosedError();
      }
    }
  }

  /** The leader now, and every change of it; undefined while there is none. End the loop to stop, or abort the signal. */
  async *observe(options: { signal?: AbortSignal } = {}): AsyncIterable<Leader | undefined> {
    const { clock, ttlMs } = this.#instance.options;
    checkSignal(options.signal);
    let seen: Leader | undefined;
    let first = true;
    let reachedAt = clock.now();
    while (!options.signal?.aborted) {
      try {
        const leader = await this.#unlessAborted(this.#leader(), options.signal);
        if (options.signal?.aborted) return;
        reachedAt = clock.now();
        if (first || leader?.token !== seen?.token) yield leader;
        seen = leader;
        first = false;
      } catch (error) {
        if (!(error instanceof EngineError && error.retryable && clock.now() - reachedAt < ttlMs)) throw error;
      }
      await this.#pause(Math.min(1_000, Math.max(50, ttlMs / 40)), options.signal);
    }
  }

  async #campaign({ value = '', signal, timeout, label }: CampaignOptions, task?: number): Promise<HeldLease> {
    checkValue(value);
    checkSignal(signal);
    const timeoutMs = timeout === undefined ? undefined : parseDuration(timeout, 'timeout');
    const turn = await this.#instance.acquire(this.#target, {
      weight: ALL,
      patience: { timeoutMs, signal },
      label: label === undefined ? undefined : checkName(label, 'label'),
      value,
      task,
    });
    if (!turn) throw await this.#instance.busy(this.#target.ref);
    // It may have been lost while the promise was on its way.
    if (!turn.open) throw turn.undeliveredError();
    return new HeldLease(this.#instance, turn);
  }

  /** A holder without a value is no leader: a mutex of this name. */
  async #leader(): Promise<Leader | undefined> {
    for await (const { kind, claims } of this.#instance.inspect({ name: this.name })) {
      const [claim] = claims;
      if (kind !== 'lock' || claim?.state !== 'held' || claim.value === undefined || claim.token === undefined)
        continue;
      return withTokenAsText({ value: claim.value, token: claim.token, label: claim.label });
    }
    return undefined;
  }

  /** An abort does not wait for the look that is under way. */
  #unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T | undefined> {
    if (!signal) return work;
    return new Promise((resolve, reject) => {
      const aborted = (): void => resolve(undefined);
      signal.addEventListener('abort', aborted, { once: true });
      work.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted));
    });
  }

  #pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.close();
        forget();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = this.#instance.options.clock.timer(ms, done);
      const forget = this.#instance.onOver(done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }
}

/** Whether the error says no more than that the term is over: whatever was aborted says so in its own way. */
function tellsLoss(error: unknown, term: HeldLease): boolean {
  if (error instanceof LeaseLostError) return error.lock === term.name && error.token === term.token;
  return term.turn.loss !== undefined && error instanceof Error && error.name === 'AbortError';
}

function checkValue(value: unknown): void {
  if (typeof value !== 'string') throw new ConfigError(`An election's value must be a string; got ${show(value)}.`);
  checkRegisterValue(value, "An election's value");
}
