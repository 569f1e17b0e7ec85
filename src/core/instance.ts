import { type Clock, type Timer } from './clock.js';
import { Closing, type Work } from './closing.js';
import { Deadlines } from './deadlines.js';
import type { Engine, EngineLine, EngineSource, LineQuery, LineRef } from './engine.js';
import {
  AcquireTimeoutError,
  asHoldfastError,
  type Blocker,
  Caller,
  ClosedError,
  ConfigError,
  fromHere,
  named,
  silence,
  UnsupportedError,
} from './errors.js';
import { EXPLAIN_WITHIN_MS, type Look } from './explanation.js';
import { floorOf } from './floor.js';
import { outside } from './outside.js';
import { Realm, type RealmOptions } from './realm.js';
import { currentFrame, enclosingTurn, type Frame, isWorkOf } from './reentrancy.js';
import { acquireIsObserved, publishGranted, traceAcquire } from './telemetry.js';
import type { Turn } from './turn.js';
import { type ClaimView, type LineView, lineView, type Note, withTokenAsText } from './view.js';
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

/** How long a source may take to connect before it is asked anew; at least one ttl. */
const CONNECT_WITHIN_MS = 10_000;

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

/** What a lock object asks for. @internal */
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

/** @internal */
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

/** One Holdfast's presence: its engine, its sessions and its own waiters. Two instances are strangers to each other. @internal */
export class Instance {
  readonly source: EngineSource;
  readonly options: InstanceOptions;
  readonly #deadlines: Deadlines;
  readonly #explaining: Deadlines;
  readonly #realms = new Map<string, Realm>();
  readonly #plainNote: string;
  #engine: Promise<Engine> | undefined;
  #connected = false;
  /** Users' functions that work inside their locks. */
  readonly #working = new Set<Work>();
  /** Those under way, by line. */
  readonly #looks = new Map<string, Promise<Look | undefined>>();
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
    this.#explaining = new Deadlines(options.clock, EXPLAIN_WITHIN_MS);
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
    if (outer) {
      const realm = this.#realm(line.name);
      floorOf(outer).enter(waiter, {
        admit: () => this.#assertRoom(),
        addPending: (by) => realm.addPending(by),
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
      const engine = await this.#connect();
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
    if (this.source.traits.listing) return;
    throw new UnsupportedError(`${what} needs an engine that can list its lines, and this one can't.`);
  }

  requireRegisters(what: string): void {
    if (this.source.traits.registers) return;
    throw new UnsupportedError(`${what} needs an engine with registers, and this one has none.`);
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const engine = await this.engine('evict');
    return this.call('evict', () => engine.evict!(name, claimId, reason));
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
    const engine = await this.call('inspect', () => this.#connect());
    const lines = await this.call('inspect', async () => engine.inspect!(query)[Symbol.asyncIterator]());
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
    return this.call(doing, () => this.#connect());
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
    const disposed = this.#engine?.then((engine) => engine[Symbol.asyncDispose]());
    // An engine that hangs, or has not connected yet, does not keep us: what it has of ours dies with its ttl.
    if (this.#connected) await this.call('close', () => disposed!).catch(() => {});
    else disposed?.catch(() => {});
    this.#deadlines.end();
    this.#explaining.end();
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

  #connect(): Promise<Engine> {
    if (!this.#engine) {
      const { namespace, clock, ttlMs } = this.options;
      // A source that throws instead of rejecting is only another way to fail.
      const connecting = outside(async () => this.source.connect({ namespace, clock }));
      this.#engine = connecting;
      // One that does not answer is asked again, after a while: else a single lost packet would cost the instance.
      const hanging = clock.timer(Math.max(ttlMs, CONNECT_WITHIN_MS), () => this.#forgo(connecting));
      hanging.unref();
      const forgetOver = this.onOver(() => hanging.close());
      connecting.then(
        () => {
          hanging.close();
          forgetOver();
          this.#connected ||= this.#engine === connecting;
        },
        () => {
          hanging.close();
          forgetOver();
          if (this.#engine === connecting) this.#engine = undefined;
        },
      );
    }
    return this.#engine;
  }

  #forgo(connecting: Promise<Engine>): void {
    this.#engine = undefined;
    connecting.then((engine) => engine[Symbol.asyncDispose]()).catch(() => {});
  }

  #realmName(name: string): string {
    return this.source.realm?.(name) ?? '';
  }

  #realm(name: string): Realm {
    const realm = this.#realmName(name);
    const existing = this.#realms.get(realm);
    if (existing) return existing;
    const { clock, ttlMs, label } = this.options;
    const look: RealmOptions['look'] = (line) => this.look(line);
    const made = new Realm({
      clock,
      name: realm,
      ttlMs,
      label,
      title: this.source.title,
      connect: () => this.#connect(),
      look,
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

  /** Who stands in a line, for an error's message. All who want to know while one look is under way share it. */
  look(ref: LineRef): Promise<Look | undefined> {
    const key = lineKey(ref);
    let look = this.#looks.get(key);
    if (!look) {
      look = outside(() => this.#look(ref)).finally(() => this.#looks.delete(key));
      this.#looks.set(key, look);
    }
    return look;
  }

  /** Whatever can be learnt, and nothing rather than an error. */
  async #look(ref: LineRef): Promise<Look | undefined> {
    if (!this.source.traits.listing) return undefined;
    try {
      for await (const { kind, claims } of this.#inspect({ name: ref.name })) {
        if (kind !== ref.kind) continue;
        const holder = claims.find(({ state }) => state === 'held');
        const places = new Map(claims.map(({ id }, index) => [id, index]));
        const heldHere = holder?.label.endsWith(`@${this.options.hostLabel}`) === true;
        return { holder: holder && blocker(holder), heldHere, places };
      }
    } catch {
      // The wait has timed out in any case.
    }
    return undefined;
  }

  /** Why one try found the lock busy: who holds it, if that can be had soon. */
  async busy(ref: LineRef): Promise<AcquireTimeoutError> {
    const look = await new Promise<Look | undefined>((resolve) => {
      const looking = this.#explaining.start(() => resolve(undefined), true);
      void this.look(ref).then((seen) => looking.answered() && resolve(seen));
    });
    return new AcquireTimeoutError(ref.name, 0, {
      holder: look?.holder,
      heldHere: look?.heldHere === true,
      place: look?.places.size,
    });
  }
}

/** A leader hears at once that its instance closes; its lock is kept until it has ended. */
function revoke({ frames }: Work): void {
  for (const { turn } of frames) turn.revoke({ reason: 'released' });
}

export function lineKey(ref: LineRef): string {
  return `${ref.kind}:${ref.name}`;
}

function blocker({ label, session, token, since }: ClaimView): Blocker {
  return withTokenAsText({ label, session, token, since });
}
