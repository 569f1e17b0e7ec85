import { type Clock, type Timer } from './clock.js';
import { Closing, type Work } from './closing.js';
import { ConnectingEngine } from './connecting.js';
import { Deadlines } from './deadlines.js';
import type { Engine, EngineLine, EngineSource, LineQuery, Registers } from './engine.js';
import {
  asHoldfastError,
  Caller,
  ClosedError,
  ConfigError,
  fromHere,
  named,
  silence,
  UnsupportedError,
} from './errors.js';
import { floorOf } from './floor.js';
import { Looks } from './looks.js';
import { outside } from './outside.js';
import { Realm } from './realm.js';
import { currentFrame, enclosingTurn, Frame, isWorkOf, taskForRun } from './reentrancy.js';
import type { Asking, Target } from './target.js';
import { acquireIsObserved, publishGranted, traceAcquire } from './telemetry.js';
import type { Turn } from './turn.js';
import { type LineView, lineView, type Note } from './view.js';
import { Waiter } from './waiter.js';

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

/** What an instance has, for metrics and probes. */
export interface InstanceStats {
  /** Leases that are held now; those that code got inside of one that it had are not counted again. */
  readonly held: number;
  /** Acquires that wait. */
  readonly waiting: number;
  /** Sessions that are open: one, but for a cluster of Redis. */
  readonly sessions: number;
  /** How long ago the engine last answered to a beat, or to the opening of the session; the longest of all. Undefined: none is open. */
  readonly lastBeatAgoMs: number | undefined;
  /** How long the engine grants nothing, because its server may have lost its memory. Undefined: it is not guarded, as far as is known. */
  readonly guardEndsInMs: number | undefined;
}

/** One Holdfast's presence: its engine, its sessions and its own waiters. Two instances are strangers to each other. @internal */
export class Instance {
  readonly source: EngineSource;
  readonly options: InstanceOptions;
  readonly #deadlines: Deadlines;
  readonly #realms = new Map<string, Realm>();
  readonly #plainNote: string;
  readonly #connecting: ConnectingEngine;
  /** Users' functions that work inside their locks. */
  readonly #working = new Set<Work>();
  readonly looks: Looks;
  #closing: Closing | undefined;
  #draining: Timer | undefined;
  #warned = false;
  #over = false;
  readonly #whenOver = new Set<() => void>();
  readonly #pauses = new Set<() => void>();

  constructor(source: EngineSource, options: InstanceOptions) {
    this.source = source;
    this.options = options;
    this.#deadlines = new Deadlines(options.clock, options.ttlMs / 3);
    const { clock, ttlMs, namespace, hostLabel } = options;
    const connect = (): Promise<Engine> => source.connect({ namespace, clock });
    this.#connecting = new ConnectingEngine({ clock, ttlMs, connect, onOver: (run) => this.onOver(run) });
    const inspect = source.traits.listing ? (query: LineQuery) => this.#inspect(query) : undefined;
    this.looks = new Looks({ clock, hostLabel, inspect });
    this.#plainNote = JSON.stringify({ label: options.label } satisfies Note);
  }

  /** Where its tokens come from: equal for two instances only if they use the same engine. */
  get place(): unknown {
    return this.source.place ?? this.source;
  }

  /** Whether the engine has been reached, so that the next call is likely to be answered. */
  get reached(): boolean {
    for (const realm of this.#realms.values()) if (realm.reached) return true;
    return false;
  }

  isOnSameEngine(other: Instance): boolean {
    return this.place === other.place && this.options.namespace === other.options.namespace;
  }

  /** Undefined: tried once, and it was busy. */
  acquire(target: Target, asking: Asking): Promise<Turn | undefined> {
    if (!acquireIsObserved()) return this.#acquire(target, asking);
    const { kind, name } = target.ref;
    const message = { name, kind, label: this.#label(asking) };
    const startedAt = this.options.clock.now();
    return traceAcquire(message, async () => {
      const turn = await this.#acquire(target, asking);
      if (turn) publishGranted({ ...message, token: turn.hand.token, waitedMs: this.options.clock.now() - startedAt });
      return turn;
    });
  }

  #acquire(target: Target, asking: Asking): Promise<Turn | undefined> {
    this.#assertOpen();
    const { ref: line, key } = target;
    const { weight, patience } = asking;
    patience.signal?.throwIfAborted();
    const frame = currentFrame();
    const inside = this.options.reentrant && target.reentrant ? enclosingTurn(frame, this, key) : undefined;
    const outer = asking.within ?? inside;
    const waiter = new Waiter(this.options.clock, weight, patience, frame);
    asking.began?.(waiter);
    if (outer) {
      const realm = this.#realm(line.name);
      floorOf(outer).enter(waiter, {
        admit: () => this.#assertRoom(),
        addPending: (by) => realm.addPending(by),
        busy: (timeoutMs) => this.looks.busy(line, timeoutMs),
        ...(!asking.within && { takeRealLock: () => this.#takeRealLock(target, asking, waiter) }),
      });
    } else {
      if (!waiter.triesOnce) this.#assertRoom();
      this.#takeRealLock(target, asking, waiter);
    }
    return waiter.promise;
  }

  #takeRealLock({ ref: line, key, capacity, rw, cohort }: Target, asking: Asking, waiter: Waiter): void {
    this.#realm(line.name)
      .line(line, key)
      .acquire(waiter, {
        line,
        weight: asking.weight,
        capacity,
        rw,
        cohort: cohort && this.options.cohort,
        note: this.#note(asking, waiter.frame),
      });
  }

  /** A user's function begins to work inside its locks. Answers with what is to be called when it has ended. */
  begin(work: Work): () => void {
    this.#working.add(work);
    for (const frame of work.frames) frame.works = true;
    if (this.#closing && work.yields) revoke(work);
    return () => {
      this.#working.delete(work);
      if (!this.#closing) return;
      this.#drainSoon();
      this.#closing.look();
    };
  }

  /** What was done under an evicted turn stops. That is work too: an instance that closes lets it end. */
  stop(turn: Turn, work: () => PromiseLike<unknown>): Promise<unknown> {
    return outside(() => {
      const { frame: run } = turn;
      const frame = new Frame(this, '', turn, taskForRun());
      turn.frame = run;
      // It is part of the run that it stops: whoever closes us in one of them waits for neither.
      const ended = this.begin({ frames: run?.works ? [frame, run] : [frame], yields: false });
      return frame
        .run(async () => work())
        .finally(() => {
          frame.end();
          ended();
        });
    });
  }

  /** What was acquired inside a function that has ended is nobody's work any more. Many may end together. */
  #drainSoon(): void {
    if (this.#draining || this.#over) return;
    this.#draining = this.options.clock.timer(0, () => {
      this.#draining = undefined;
      for (const realm of this.#realms.values()) realm.drain(this);
    });
  }

  /** Asks the engine now, and waits for its answer. */
  async ready(timeoutMs: number): Promise<void> {
    this.#assertOpen();
    const { clock } = this.options;
    const endsAt = clock.now() + timeoutMs;
    try {
      await this.#realm('').ready(timeoutMs);
      const engine = await this.#connecting.engine();
      if (engine.ping) await this.#within(Math.max(0, endsAt - clock.now()), engine.ping());
    } catch (error) {
      throw named(asHoldfastError(error, 'ready'), { engine: this.source.title });
    }
  }

  #within(ms: number, answer: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.options.clock.timer(ms, () => reject(silence('ready')));
      answer.then(resolve, reject).finally(() => timer.close());
    });
  }

  stats(): InstanceStats {
    const all = Array.from(this.#realms.values(), (realm) => realm.stats());
    const beats = all.flatMap(({ lastBeatAgoMs = [] }) => lastBeatAgoMs);
    const guards = all.flatMap(({ guardEndsInMs = [] }) => guardEndsInMs);
    return {
      held: all.reduce((sum, { held }) => sum + held, 0),
      waiting: all.reduce((sum, { waiting }) => sum + waiting, 0),
      sessions: beats.length,
      lastBeatAgoMs: beats.length > 0 ? Math.max(...beats) : undefined,
      guardEndsInMs: guards.length > 0 ? Math.max(...guards) : undefined,
    };
  }

  /** Throws where lines can't be listed: called when the object is made, or before the first I/O. */
  requireListing(what: string): void {
    if (!this.source.traits.listing) throw withoutListing(what);
  }

  requireRegisters(what: string): void {
    if (!this.source.traits.registers) throw withoutRegisters(what);
  }

  async registers(doing: string): Promise<Registers> {
    const { registers } = await this.engine(doing);
    if (!registers) throw withoutRegisters(doing);
    return registers;
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const engine = await this.engine('evict');
    return this.call('evict', async () => {
      if (!engine.evict) throw withoutListing('evict');
      return engine.evict(name, claimId, reason);
    });
  }

  /** @param caller is noted when this is called; what stands below runs when the first line is asked for. */
  async *inspect(query: LineQuery, caller = new Caller()): AsyncIterable<LineView> {
    try {
      this.#assertOpen();
      yield* this.#inspect(query);
    } catch (error) {
      throw fromHere(error, caller);
    }
  }

  /** With our own deadline on each step. */
  async *#inspect(query: LineQuery): AsyncIterable<LineView> {
    const engine = await this.call('inspect', () => this.#connecting.engine());
    const lines = await this.call('inspect', async () => {
      if (!engine.inspect) throw withoutListing('inspect');
      return engine.inspect(query)[Symbol.asyncIterator]();
    });
    const next = (): Promise<IteratorResult<EngineLine>> => this.call('inspect', () => lines.next());
    try {
      for (let line = await next(); !line.done; line = await next())
        if (line.value.claims.length > 0) yield this.#view(line.value);
    } finally {
      // Not awaited: a generator that waits for a lost reply can't be ended before that comes.
      lines.return?.().catch(() => {});
    }
  }

  /** One remote call outside of any session, with our own deadline, and errors of our own whether it rejects or throws. */
  async call<T>(doing: string, ask: () => Promise<T>): Promise<T> {
    try {
      return await this.#deadlines.race(ask(), () => (this.#over ? new ClosedError() : silence(doing)));
    } catch (error) {
      throw named(asHoldfastError(error, doing), { engine: this.source.title });
    }
  }

  async engine(doing: string): Promise<Engine> {
    this.#assertOpen();
    return this.call(doing, () => this.#connecting.engine());
  }

  /**
   * Functions inside a run may end, with their locks kept, for so long; all others are told at once, and then everything is
   * released and what we opened is closed. Called again, it can only be sooner.
   */
  close(drainMs: number): Promise<void> {
    this.#closing ??= new Closing(this.options.clock, this.#working, (closing) => outside(() => this.#close(closing)));
    const { closed, othersDrained } = this.#closing;
    const closer = currentFrame();
    this.#closing.ask(drainMs, closer);
    return isWorkOf(this, closer) ? Promise.race([othersDrained, closed]) : closed;
  }

  async #close(closing: Closing): Promise<void> {
    // Listeners that call back into us must find us closing already.
    await Promise.resolve();
    this.#endPauses();
    // Where nobody works, everything goes with the sessions, at once.
    if (this.#working.size > 0) for (const realm of this.#realms.values()) realm.drain(this);
    for (const work of [...this.#working]) if (work.yields) revoke(work);
    await closing.drained;
    this.#over = true;
    this.#draining?.close();
    // Also those that were first used meanwhile.
    await Promise.all(Array.from(this.#realms.values(), (realm) => realm.close()));
    const disposed = this.#connecting.dispose();
    // An engine that hangs does not keep us: what it has of ours dies with its ttl.
    if (disposed) await this.call('close', () => disposed).catch(() => {});
    this.#deadlines.end();
    this.looks.end();
    for (const run of this.#whenOver) run();
    this.#endPauses();
  }

  /** Until then, or until it begins to close, which whoever goes on finds out, or until the signal is aborted. */
  pause(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.close();
        this.#pauses.delete(done);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = this.options.clock.timer(ms, done);
      this.#pauses.add(done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }

  #endPauses(): void {
    for (const done of [...this.#pauses]) done();
  }

  /** Calls it when this has closed, unless it is told before that it need not. */
  onOver(run: () => void): () => void {
    this.#whenOver.add(run);
    return () => this.#whenOver.delete(run);
  }

  get closing(): boolean {
    return this.#closing !== undefined;
  }

  /** Whether it takes calls of the code that asks. Work that began before it was told to close may go on. */
  get open(): boolean {
    if (!this.#closing) return true;
    return !this.#over && !this.#closing.over && isWorkOf(this, currentFrame());
  }

  #assertOpen(): void {
    if (!this.open) throw new ClosedError();
  }

  #assertRoom(): void {
    const { maxWaiters } = this.options;
    let pending = 0;
    for (const realm of this.#realms.values()) pending += realm.pending;
    if (pending < maxWaiters) return;
    throw new ConfigError(
      `${maxWaiters} acquires are waiting in this process already, which is what maxWaiters allows. ` +
        'Give acquires a timeout, use tryAcquire, or raise maxWaiters.',
    );
  }

  #realmName(name: string): string {
    return this.source.realm?.(name) ?? '';
  }

  #realm(name: string): Realm {
    const realm = this.#realmName(name);
    const existing = this.#realms.get(realm);
    if (existing) return existing;
    const { clock, ttlMs, label } = this.options;
    const made = new Realm({
      clock,
      name: realm,
      ttlMs,
      label,
      title: this.source.title,
      listing: this.source.traits.listing,
      connect: () => this.#connecting.engine(),
      look: (line) => this.looks.at(line),
      metGuard: (words) => this.#metGuard(words),
    });
    this.#realms.set(realm, made);
    return made;
  }

  /** Once: who waits for it would else wait in silence, and nobody wants to read it with every acquire. */
  #metGuard(words: string): void {
    if (this.#warned) return;
    this.#warned = true;
    process.emitWarning(`${this.source.title ?? 'Holdfast'}: ${words}`, 'HoldfastWarning');
  }

  #note(asking: Asking, frame: Frame | undefined): string {
    const task = asking.task ?? frame?.task;
    if (asking.label === undefined && asking.value === undefined && task === undefined) return this.#plainNote;
    return JSON.stringify({ label: this.#label(asking), task, value: asking.value } satisfies Note);
  }

  #label({ label }: Asking): string {
    return label === undefined ? this.options.label : `${label}@${this.options.hostLabel}`;
  }

  #view(line: EngineLine): LineView {
    const realm = this.#realms.get(this.#realmName(line.name));
    return lineView(line, (claimId) => realm?.localView(claimId));
  }
}

function withoutListing(what: string): UnsupportedError {
  return new UnsupportedError(`${what} needs an engine that can list its lines, and this one can't.`);
}

function withoutRegisters(what: string): UnsupportedError {
  return new UnsupportedError(`${what} needs an engine with registers, and this one has none.`);
}

/** A leader hears at once that its instance closes; its lock is kept until it has ended. */
function revoke({ frames }: Work): void {
  for (const { turn } of frames) turn.revoke({ reason: 'released' });
}
