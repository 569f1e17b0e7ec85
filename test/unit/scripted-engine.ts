import type {
  Claim,
  ClaimRef,
  Engine,
  EngineSource,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
  Traits,
} from '../../src/core/engine.js';
import { traits as memoryTraits } from '../../src/engines/memory/traits.js';

/** What the engine does with each call. A test replaces what it wants to go wrong. */
export interface Script {
  connect(): Promise<void>;
  open(session: ScriptedSession): Promise<void>;
  enter(claim: Claim, session: ScriptedSession): Promise<Place>;
  leave(claim: ClaimRef, session: ScriptedSession): Promise<boolean>;
  reweigh(claim: Claim, session: ScriptedSession): Promise<void>;
  beat(roster: Roster, session: ScriptedSession): Promise<Pulse>;
  close(session: ScriptedSession): Promise<void>;
}

/**
 * A scripted double, because it plays faults that no real engine can on demand: it answers late, never, twice, in the
 * wrong order, or wrongly. Unless told otherwise, it grants everything at once and is always well.
 */
export class ScriptedEngine implements EngineSource {
  readonly traits: Traits = { ...memoryTraits, listing: false };
  readonly sessions: ScriptedSession[] = [];
  /** The ttl that sessions get, where it is not what they asked for. */
  ttlMs: number | undefined;
  #tokens = 0n;
  readonly #whole: Script = {
    connect: () => Promise.resolve(),
    open: () => Promise.resolve(),
    enter: () => Promise.resolve({ state: 'held', token: this.mint() }),
    leave: () => Promise.resolve(true),
    reweigh: () => Promise.resolve(),
    beat: () => Promise.resolve({ alive: true }),
    close: () => Promise.resolve(),
  };
  script: Script = { ...this.#whole };

  async connect(): Promise<Engine> {
    await this.script.connect();
    return {
      open: async (options, listener) => {
        const session = new ScriptedSession(this, options, listener);
        this.sessions.push(session);
        await this.script.open(session);
        return session;
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }

  /** The session that was opened last. */
  get session(): ScriptedSession {
    return this.sessions.at(-1)!;
  }

  mint(): bigint {
    this.#tokens += 1n;
    return this.#tokens;
  }

  /** From now on it does what it is told here. */
  now(script: Partial<Script>): void {
    this.script = { ...this.script, ...script };
  }

  /** The network is cut: nothing is answered any more. */
  hang(): void {
    this.script = {
      connect: never,
      open: never,
      enter: never,
      leave: never,
      reweigh: never,
      beat: never,
      close: never,
    };
  }

  /** Everything works again. */
  heal(): void {
    this.script = { ...this.#whole };
  }
}

export class ScriptedSession implements Session {
  readonly id: string;
  readonly ttlMs: number;
  readonly listener: SessionListener;
  readonly entered: Claim[] = [];
  readonly left: string[] = [];
  readonly reweighed: Claim[] = [];
  readonly beats: Roster[] = [];
  closed = 0;
  readonly #engine: ScriptedEngine;

  constructor(engine: ScriptedEngine, options: OpenOptions, listener: SessionListener) {
    this.#engine = engine;
    this.id = options.id;
    this.ttlMs = engine.ttlMs ?? options.ttlMs;
    this.listener = listener;
  }

  enter(claim: Claim): Promise<Place> {
    this.entered.push(claim);
    return this.#engine.script.enter(claim, this);
  }

  leave(claim: ClaimRef): Promise<boolean> {
    this.left.push(claim.id);
    return this.#engine.script.leave(claim, this);
  }

  reweigh(claim: Claim): Promise<void> {
    this.reweighed.push(claim);
    return this.#engine.script.reweigh(claim, this);
  }

  beat(roster: Roster): Promise<Pulse> {
    this.beats.push(roster);
    return this.#engine.script.beat(roster, this);
  }

  close(): Promise<void> {
    this.closed += 1;
    return this.#engine.script.close(this);
  }
}

/** A call that is never answered. */
export function never(): Promise<never> {
  return new Promise(() => undefined);
}

/** A call that is answered when the test says so. */
export class Pending<T> {
  resolve!: (value: T) => void;
  reject!: (error: unknown) => void;
  readonly promise = new Promise<T>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });
}
