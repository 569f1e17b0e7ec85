import { backoff } from '../core/backoff.js';
import type { Duration } from '../core/duration.js';
import { Caller, calling, ClosedError, EngineError, fromHere, LeaseLostError } from '../core/errors.js';
import type { Instance } from '../core/instance.js';
import { ALL } from '../core/line.js';
import { checkText } from '../core/names.js';
import { checkOptions, type Known } from '../core/options.js';
import { taskForRun } from '../core/reentrancy.js';
import { publishOutage } from '../core/telemetry.js';
import { withTokenAsText } from '../core/view.js';
import type { HeldLease, Lease } from './lease.js';
import { checkSignal, LineLock, optionsAndWork } from './lock.js';
import { LONGEST_VALUE_BYTES } from './register.js';
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

const CAMPAIGN_OPTIONS: Known<CampaignOptions> = { value: true, signal: true, timeout: true, label: true };
const OBSERVE_OPTIONS: Known<{ signal?: AbortSignal }> = { signal: true };

export interface Leader {
  readonly value: string;
  readonly token: bigint;
  readonly label: string;
}

/** One leader at a time. Candidates stand in the line of the lock with this name, so a mutex of it waits for them. */
export class Election {
  readonly name: string;
  readonly #instance: Instance;
  readonly #lock: LineLock<HeldLease>;

  /** @internal */
  constructor(instance: Instance, name: string) {
    const spec = { kind: 'lock', name, weight: ALL, capacity: ALL, cohort: false, reentrant: false } as const;
    this.#instance = instance;
    this.name = name;
    this.#lock = new LineLock(instance, spec);
  }

  /** Waits for office. Resign with `term.release()`. */
  async campaign(options: CampaignOptions = {}): Promise<Term> {
    checkOptions(options, CAMPAIGN_OPTIONS, 'An election');
    return calling(() => this.#campaign(options));
  }

  /**
   * Leads with `work` until it resolves. When the term is lost, `term.signal` aborts; once `work` has settled, it
   * campaigns again. So `work` never runs twice at once here, and never without a term. Its own error ends it. An outage of the
   * engine does not, however long: it is waited out, unless there is a `timeout`, and told on `holdfast:outage`.
   */
  async lead<T>(
    ...args: [work: (term: Term) => T | PromiseLike<T>] | [CampaignOptions, (term: Term) => T | PromiseLike<T>]
  ): Promise<T> {
    const [options, work] = optionsAndWork('lead', args);
    checkOptions(options, CAMPAIGN_OPTIONS, 'An election');
    const caller = new Caller();
    for (;;) {
      const task = taskForRun();
      const term = await this.#campaignThroughOutages(options, task).catch((error: unknown) => {
        throw fromHere(error, caller);
      });
      try {
        const frame = this.#lock.frameFor(term, task);
        return await runInside(this.#instance, [frame], () => work(term), { yields: true });
      } catch (error) {
        if (!tellsLoss(error, term)) throw error;
        // Also where the code around it may still acquire: the next term would be over before it began.
        if (this.#instance.closing) throw fromHere(new ClosedError(), caller);
      }
    }
  }

  /**
   * The leader now, and every change of it; undefined while there is none, and while the engine has not answered for one ttl.
   * End the loop to stop, or abort the signal.
   */
  async *observe(options: { signal?: AbortSignal } = {}): AsyncIterable<Leader | undefined> {
    checkOptions(options, OBSERVE_OPTIONS, 'observe');
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
        this.#tellOutage(error);
        if (clock.now() - reachedAt >= ttlMs && (first || seen)) {
          yield undefined;
          seen = undefined;
          first = false;
        }
      }
      await this.#instance.pause(Math.min(1_000, Math.max(50, ttlMs / 40)), options.signal);
    }
  }

  async #campaignThroughOutages(options: CampaignOptions, task: number): Promise<HeldLease> {
    const { clock, ttlMs } = this.#instance.options;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#campaign(options, task);
      } catch (error) {
        // A term that was lost on its way to us is lost like any other. Who was evicted while it waited had none.
        if (error instanceof LeaseLostError && error.token !== undefined) continue;
        if (options.timeout !== undefined) throw error;
        this.#tellOutage(error);
      }
      await this.#instance.pause(backoff(clock, attempt, ttlMs / 100, ttlMs / 3), options.signal);
    }
  }

  /** Throws what is no outage. */
  #tellOutage(error: unknown): void {
    if (!(error instanceof EngineError && error.retryable)) throw error;
    publishOutage({ name: this.name, kind: 'lock', error });
  }

  #campaign({ value = '', ...options }: CampaignOptions, task?: number): Promise<HeldLease> {
    checkText(value, "An election's value", LONGEST_VALUE_BYTES);
    return this.#lock.take(options, true, { task, value }) as Promise<HeldLease>;
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
}

/**
 * Whether the error says no more than that the term is over: whatever was aborted by its signal says so in its own way. Node.js gives the
 * signal's reason as the cause of an AbortError, older libraries give none. A DOMException is the reason of a signal of the user's own.
 */
function tellsLoss(error: unknown, term: HeldLease): boolean {
  // Whoever has resigned has lost nothing.
  if (term.turn.loss === undefined) return false;
  if (error instanceof LeaseLostError) return error.lock === term.name && error.token === term.token;
  if (!(error instanceof Error) || error.name !== 'AbortError') return false;
  return !(error instanceof DOMException) && (error.cause === undefined || tellsLoss(error.cause, term));
}
