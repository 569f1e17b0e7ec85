/**
 * Which locks the running code is inside of. Identity is the async context, not a thread and not a caller: a frame is
 * made by `run` alone, and whatever is called or awaited inside of it sees it.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { shared } from './one-library.js';
import type { Turn } from './turn.js';
import type { Waiter } from './waiter.js';

/** Something that code can wait for: a line, or the floor of a turn. */
export interface Waited {
  readonly name: string;
  /** How many wait here inside a run, and for as long as it takes. */
  endlessWaits: number;
  /** The turns that must end before this waiter is served. */
  holders(waiter: Waiter): Iterable<Turn>;
  /** Whether this turn stands here. */
  carries(turn: Turn): boolean;
}

export class Frame {
  /** The Holdfast instance: two instances are strangers to each other. */
  readonly owner: object;
  readonly lineKey: string;
  /** Counts outermost frames: one number for all that a task holds and waits for. */
  readonly task: number;
  /** What code inside this frame waits for at the moment. */
  readonly waits = new Set<Wait>();
  /** A user's function works in it, not only a wait of ours. */
  works = false;
  #parent: Frame | undefined;
  #turn: Turn | undefined;

  constructor(owner: object, lineKey: string, turn: Turn, task: number, parent = currentFrame()) {
    this.#parent = parent;
    this.task = parent?.task ?? task;
    this.owner = owner;
    this.lineKey = lineKey;
    this.#turn = turn;
    turn.frame = this;
  }

  /** While its run goes on. */
  get turn(): Turn {
    return this.#turn!;
  }

  /** Its run has ended: code that outlives it (a detached promise) is not inside any more. */
  get over(): boolean {
    return this.#turn === undefined;
  }

  /**
   * The frame around it that is still there. Those that are over are forgotten on the way: a job that starts its next run
   * inside its last one would else drag all of them behind it.
   */
  get parent(): Frame | undefined {
    while (this.#parent?.over) this.#parent = this.#parent.around;
    return this.#parent;
  }

  /** The one that it was made in, as far as it remembers. */
  get around(): Frame | undefined {
    return this.#parent;
  }

  run<T>(work: () => T): T {
    return storage.run(this, work);
  }

  /** Whoever still refers to it (a promise, a timer, an async context) keeps nothing else alive by that. */
  end(): void {
    this.#parent = this.parent;
    this.#turn = undefined;
    this.works = false;
  }

  /** Itself and those around it. */
  *chain(): Iterable<Frame> {
    for (let frame: Frame | undefined = this; frame; frame = frame.parent) yield frame;
  }
}

const storage = shared('frames', () => new AsyncLocalStorage<Frame>());
const tasks = shared('tasks', () => ({ count: 0 }));

/** The task of the running code, or a new one for a run that is about to begin outside of any. */
export function taskForRun(): number {
  const task = currentFrame()?.task;
  if (task !== undefined) return task;
  tasks.count += 1;
  return tasks.count;
}

/** The innermost run that the running code is inside of. */
export function currentFrame(): Frame | undefined {
  return stillThere(storage.getStore());
}

/** This frame while its run goes on, else the innermost around it whose run does. */
export function stillThere(frame: Frame | undefined): Frame | undefined {
  return frame?.over ? frame.parent : frame;
}

/**
 * The turn of this line that code in this frame is inside of *now*: not one that was released, and not one whose run has
 * ended. Throws where it was lost, because code that goes on without its lock must be told.
 */
export function enclosingTurn(innermost: Frame | undefined, owner: object, lineKey: string): Turn | undefined {
  for (let frame = innermost; frame; frame = frame.parent) {
    if (frame.owner !== owner || frame.lineKey !== lineKey) continue;
    frame.turn.notice();
    if (frame.turn.open) return frame.turn;
    if (frame.turn.loss) throw frame.turn.lossError();
  }
  return undefined;
}

/** Whether the running code is inside a turn that is inside this one. */
export function runsInside(outer: Turn): boolean {
  for (let frame = currentFrame(); frame; frame = frame.parent) {
    // Who has given it back is not inside any more, though the run goes on.
    if (frame.turn.released || frame.turn.over) continue;
    for (let turn = frame.turn.outer; turn; turn = turn.outer) if (turn === outer) return true;
  }
  return false;
}

/** Whether code in this frame belongs to a function of this owner's users that still works. */
export function isWorkOf(owner: object, frame: Frame | undefined): boolean {
  for (let at = stillThere(frame); at; at = at.parent) if (at.works && at.owner === owner) return true;
  return false;
}

/** One wait of code inside a frame, seen by the deadlock check for as long as it lasts. */
export class Wait {
  readonly on: Waited;
  /** The turns that must end before it does. */
  readonly blockers: () => Iterable<Turn>;
  readonly #frames: readonly Frame[];

  constructor(on: Waited, blockers: () => Iterable<Turn>, frame: Frame) {
    this.on = on;
    this.blockers = blockers;
    this.#frames = [...frame.chain()];
    on.endlessWaits += 1;
    for (const each of this.#frames) each.waits.add(this);
  }

  end(): void {
    this.on.endlessWaits -= 1;
    for (const frame of this.#frames) frame.waits.delete(this);
  }
}
