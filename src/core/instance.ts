import { type Clock } from './clock.js';
import { Deadlines } from './deadlines.js';
import type { Engine, EngineLine, EngineSource, LineQuery, LineRef } from './engine.js';
import { asHoldfastError, type Blocker, ConfigError, EngineError, UnsupportedError } from './errors.js';
import { Keeper } from './keeper.js';
import { LocalLine, type LocalLineOptions, type Obstacle } from './local-line.js';
import { currentFrame, enclosingFrame } from './reentrancy.js';
import { acquireIsObserved, publishGranted, traceAcquire } from './telemetry.js';
import type { Turn } from './turn.js';
import { type ClaimView, type LineView, lineView, type Note } from './view.js';
import { type Patience, Waiter } from './waiter.js';

export interface InstanceOptions {
  readonly clock: Clock;
  readonly ttlMs: number;
  readonly label: string;
  readonly hostLabel: string;
  readonly namespace: string;
  readonly cohort: boolean;
  readonly reentrant: boolean;
  readonly maxWaiters: number;
}

/** What a lock object asks for. */
export interface Target {
  readonly ref: LineRef;
  readonly key: string;
  readonly capacity: number;
  /** See Claim. Default: false. */
  readonly rw?: boolean | undefined;
  /** False for semaphores and elections: each acquire stands in the engine's line itself. */
  readonly cohort: boolean;
  /** False for elections and once: never granted to code that is inside already. */
  readonly reentrant: boolean;
}

export interface Asking {
  readonly weight: number;
  readonly patience: Patience;
  readonly label?: string | undefined;
  readonly value?: string | undefined;
  /** The task of a run that is about to begin; see Frame. */
  readonly task?: number | undefined;
  /** The turn to be inside of, where the caller says so by hand. */
  readonly within?: Turn | undefined;
}

/** One Holdfast's presence: its engine, its sessions and its own waiters. Two instances are strangers to each other. */
export class Instance {
  readonly source: EngineSource;
  readonly options: InstanceOptions;
  readonly #deadlines: Deadlines;
  readonly #keepers = new Map<string, { keeper: Keeper; lines: LocalLineOptions }>();
  readonly #lines = new Map<string, LocalLine>();
  readonly #plainNote: string;
  #engine: Promise<Engine> | undefined;
  #pending = 0;
  #closing: Promise<void> | undefined;

  constructor(source: EngineSource, options: InstanceOptions) {
    this.source = source;
    this.options = options;
    this.#deadlines = new Deadlines(options.clock, options.ttlMs / 3);
    this.#plainNote = JSON.stringify({ label: options.label } satisfies Note);
  }

  /** Undefined: tried once, and it was busy. */
  acquire(target: Target, asking: Asking): Promise<Turn | undefined> {
    if (!acquireIsObserved()) return this.#acquire(target, asking);
    const { kind, name } = target.ref;
    const message = { name, kind, label: this.#label(asking) };
    const startedAt = this.options.clock.now();
    return traceAcquire(message, async () => {
      const turn = await this.#acquire(target, asking);
      if (turn) publishGranted({ ...message, token: turn.token, waitedMs: this.options.clock.now() - startedAt });
      return turn;
    });
  }

  #acquire(target: Target, asking: Asking): Promise<Turn | undefined> {
    this.#assertOpen();
    const { clock, reentrant } = this.options;
    asking.patience.signal?.throwIfAborted();
    const waiter = new Waiter(clock, asking.weight, asking.patience);
    const frame = reentrant && target.reentrant ? enclosingFrame(this, target.key) : undefined;
    const outer = asking.within ?? frame?.turn;
    if (outer) {
      outer.floor.enter(waiter, clock);
    } else {
      this.#assertRoom();
      const cohort = target.cohort && this.options.cohort;
      const { capacity, rw = false } = target;
      this.#line(target).acquire(waiter, { capacity, cohort, note: this.#note(asking), rw });
    }
    return waiter.promise;
  }

  async ready(): Promise<void> {
    this.#assertOpen();
    await this.#keeping('').keeper.ready();
  }

  /** Throws where lines can't be listed: called when the object is made, or before the first I/O. */
  requireListing(what: string): void {
    if (this.source.traits.listing) return;
    throw new UnsupportedError(`${what} needs an engine that can list its lines, and this one can't.`);
  }

  requireRegisters(what: string): void {
    if (this.source.traits.registers) return;
    throw new UnsupportedError(`${what} needs an engine with registers, and this one has none.`);
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const engine = await this.engine('evict');
    return this.call('evict', engine.evict!(name, claimId, reason));
  }

  /** With our own deadline on each step. */
  async *inspect(query: LineQuery): AsyncIterable<LineView> {
    const engine = await this.engine('inspect');
    const lines = engine.inspect!(query)[Symbol.asyncIterator]();
    try {
      for (
        let next = await this.call('inspect', lines.next());
        !next.done;
        next = await this.call('inspect', lines.next())
      ) {
        if (next.value.claims.length > 0) yield this.#view(next.value);
      }
    } finally {
      // Not awaited: a generator that waits for a lost reply can't be ended before that comes.
      lines.return?.().catch(() => {});
    }
  }

  /** One remote call outside of any session, with our own deadline, and errors of our own. */
  async call<T>(doing: string, work: Promise<T>): Promise<T> {
    try {
      return await this.#deadlines.race(work, () => new EngineError(`The engine did not answer to ${doing} in time.`));
    } catch (error) {
      throw asHoldfastError(error, doing);
    }
  }

  async engine(doing: string): Promise<Engine> {
    this.#assertOpen();
    return this.call(doing, this.#connect());
  }

  /** Releases everything, tells every waiter, and closes what we opened. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    for (const line of [...this.#lines.values()]) line.close(closed());
    await Promise.all([...this.#keepers.values()].map(({ keeper }) => keeper.close()));
    const disposed = this.#engine?.then((engine) => engine[Symbol.asyncDispose]());
    // An engine that hangs, or never connected, does not keep us: what it has of ours dies with its ttl.
    if (disposed) await this.call('close', disposed).catch(() => {});
  }

  #assertOpen(): void {
    if (this.#closing) throw closed();
  }

  #assertRoom(): void {
    const { maxWaiters } = this.options;
    if (this.#pending < maxWaiters) return;
    throw new ConfigError(
      `${maxWaiters} acquires are waiting in this process already, which is what maxWaiters allows. ` +
        'Give acquires a timeout, use tryAcquire, or raise maxWaiters.',
    );
  }

  #connect(): Promise<Engine> {
    if (!this.#engine) {
      const { namespace, clock } = this.options;
      // A source that throws instead of rejecting is only another way to fail.
      const connecting = (async () => this.source.connect({ namespace, clock }))();
      this.#engine = connecting;
      connecting.catch(() => {
        this.#engine = undefined;
      });
    }
    return this.#engine;
  }

  #line(target: Target): LocalLine {
    const existing = this.#lines.get(target.key);
    if (existing) return existing;
    const line = new LocalLine(target.ref, target.key, this.#keeping(target.ref.name).lines);
    this.#lines.set(target.key, line);
    return line;
  }

  /** The keeper of a name's realm, and what local lines in that realm need. */
  #keeping(name: string): { keeper: Keeper; lines: LocalLineOptions } {
    const realm = this.source.realm?.(name) ?? '';
    const existing = this.#keepers.get(realm);
    if (existing) return existing;
    const { clock, ttlMs, label } = this.options;
    const keeper = new Keeper({ clock, realm, ttlMs, label, connect: () => this.#connect() });
    const lines: LocalLineOptions = {
      clock,
      keeper,
      ttlMs,
      look: (line, claimId) => this.obstacle(line, claimId),
      pending: (by) => {
        this.#pending += by;
        keeper.addPending(by);
      },
      emptied: (line) => {
        if (this.#lines.get(line.key) === line) this.#lines.delete(line.key);
      },
    };
    const keeping = { keeper, lines };
    this.#keepers.set(realm, keeping);
    return keeping;
  }

  #note(asking: Asking): string {
    const task = asking.task ?? currentFrame()?.task;
    if (asking.label === undefined && asking.value === undefined && task === undefined) return this.#plainNote;
    return JSON.stringify({ label: this.#label(asking), task, value: asking.value } satisfies Note);
  }

  #label({ label }: Asking): string {
    return label === undefined ? this.options.label : `${label}@${this.options.hostLabel}`;
  }

  #view(line: EngineLine): LineView {
    const local = this.#lines.get(lineKey(line));
    return lineView(line, (claimId) => local?.localView(claimId));
  }

  /** Who stands in the way, for an error's message: whatever can be learnt now, and nothing rather than an error. */
  async obstacle(ref: LineRef, claimId?: string): Promise<Obstacle> {
    if (!this.source.traits.listing) return {};
    try {
      for await (const { kind, claims } of this.inspect({ name: ref.name })) {
        if (kind !== ref.kind) continue;
        const index = claims.findIndex(({ id }) => id === claimId);
        // Nobody may hold it though many wait: an engine that has just restarted grants nothing for a while.
        const holder = claims.find(({ state }) => state === 'held');
        return { holder: holder && blocker(holder), place: index === -1 ? claims.length : index };
      }
    } catch {
      // The wait has timed out in any case.
    }
    return {};
  }
}

export function lineKey(ref: LineRef): string {
  return `${ref.kind}:${ref.name}`;
}

function blocker({ label, session, token, since }: ClaimView): Blocker {
  return { label, session, token, since };
}

function closed(): ConfigError {
  return new ConfigError('This Holdfast has been closed: make a new one.');
}
