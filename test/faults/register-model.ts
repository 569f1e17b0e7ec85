/**
 * The fenced register, one step at a time. The fence keeps the highest token that a reader and a writer has presented; a
 * reader must be newer than every writer, and whoever may write must not be older than a writer and newer than every
 * reader. Fences only rise: what is refused once is refused for ever.
 */
import type { Model, Operation } from './linearizable.js';

export interface RegisterOp extends Operation {
  readonly what: 'read' | 'write';
  /** A reader shares the register with readers; all others may write, and their reads count as writers'. */
  readonly reader: boolean;
  /** Absent: it passes any fence, and raises none. Locks without tokens are like that. */
  readonly token: bigint | undefined;
  /** What was written, or what a read returned. */
  readonly value: number;
  readonly out: 'ok' | 'stale' | 'unknown';
}

export interface RegisterState {
  readonly value: number;
  readonly maxRead: bigint;
  readonly maxWrite: bigint;
}

export const registerModel: Model<RegisterState, RegisterOp> = {
  initial: { value: 0, maxRead: 0n, maxWrite: 0n },
  step(state, op) {
    const refused = isRefused(state, op);
    if (op.out === 'stale') return refused ? state : undefined;
    if (refused) return op.out === 'unknown' ? state : undefined;
    if (op.what === 'read' && op.out === 'ok' && op.value !== state.value) return undefined;
    return accept(state, op);
  },
  key: ({ value, maxRead, maxWrite }) => `${value} ${maxRead} ${maxWrite}`,
};

function isRefused({ maxRead, maxWrite }: RegisterState, { token, reader }: RegisterOp): boolean {
  if (token === undefined) return false;
  return reader ? token <= maxWrite : token < maxWrite || token <= maxRead;
}

/** A write makes a new state even of the same value: it leaves a trace if it comes after another. */
function accept(state: RegisterState, { what, token, reader, value }: RegisterOp): RegisterState {
  const raised = token === undefined ? state : raise(state, token, reader);
  return what === 'write' ? { ...raised, value } : raised;
}

function raise(state: RegisterState, token: bigint, reader: boolean): RegisterState {
  if (reader) return token > state.maxRead ? { ...state, maxRead: token } : state;
  return token > state.maxWrite ? { ...state, maxWrite: token } : state;
}
