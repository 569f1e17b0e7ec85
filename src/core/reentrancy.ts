/**
 * Which locks the running code is inside of. Identity is the async context, not a thread and not a caller: a frame is
 * made by `run` alone, and whatever is called or awaited inside of it sees it.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Turn } from './turn.js';

/** Something that code can wait for: a line, or the floor of a turn. */
export interface Waited {
  readonly name: string;
  /** The frames that must end before a waiter is served. */
  holderFrames(): Iterable<Frame>;
}

export class Frame {
  readonly parent: Frame | undefined;
  /** The Holdfast instance: two instances are strangers to each other. */
  readonly owner: object;
  readonly lineKey: string;
  /** Counts outermost frames: one number for all that a task holds and waits for. */
  readonly task: number;
  turn: Turn;
  /** What code inside this frame waits for at the moment. */
  readonly waits = new Set<Wait>();
  /** After its run has ended, code that outlived it (a detached promise) takes the real lock. */
  closed = false;

  constructor(owner: object, lineKey: string, turn: Turn, task: number, parent = currentFrame()) {
    this.parent = parent;
    this.task = parent?.task ?? task;
    this.owner = owner;
    this.lineKey = lineKey;
    this.turn = turn;
    turn.frame = this;
  }

  run<T>(work: () => T): T {
    return storage.run(this, work);
  }

  /** A downgrade inside a run: what is left of the run holds the reader's turn. */
  continueWith(turn: Turn): void {
    this.turn = turn;
    turn.frame = this;
  }

  isWithin(outer: Frame): boolean {
    for (let frame: Frame | undefined = this; frame; frame = frame.parent) if (frame === outer) return true;
    return false;
  }
}

const storage = new AsyncLocalStorage<Frame>();

let taskCount = 0;

/** The task of the running code, or a new one for a run that is about to begin outside of any. */
export function taskForRun(): number {
  const task = currentFrame()?.task;
  if (task !== undefined) return task;
  taskCount += 1;
  return taskCount;
}

export function currentFrame(): Frame | undefined {
  return storage.getStore();
}

/** The innermost open frame of this line, if the running code is inside one. */
export function enclosingFrame(owner: object, lineKey: string): Frame | undefined {
  for (let frame = currentFrame(); frame; frame = frame.parent) {
    if (frame.owner === owner && frame.lineKey === lineKey && !frame.closed) return frame;
  }
  return undefined;
}

/** One wait of code inside a frame, seen by the deadlock check for as long as it lasts. */
export class Wait {
  readonly on: Waited;
  readonly #frame: Frame;

  constructor(on: Waited, frame: Frame) {
    this.on = on;
    this.#frame = frame;
    for (let at: Frame | undefined = frame; at; at = at.parent) at.waits.add(this);
  }

  end(): void {
    for (let at: Frame | undefined = this.#frame; at; at = at.parent) at.waits.delete(this);
  }
}
