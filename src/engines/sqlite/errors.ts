/** What SQLite says, as errors of ours. */
import { EngineError, HoldfastError } from '../../core/errors.js';

/** Busy, locked, and "protocol": so many opened the write-ahead log at once that this one was never alone with it. */
const BUSY = new Set([5, 6, 15]);
const FULL = 13;

export function isBusy(error: unknown): boolean {
  return BUSY.has(errcodeOf(error));
}

export function isFull(error: unknown): boolean {
  return errcodeOf(error) === FULL;
}

function errcodeOf(error: unknown): number {
  return Number((error as { errcode?: unknown }).errcode) & 0xff;
}

/** What SQLite says about the file, as an error of ours. The path is no secret; everything else is in the cause. */
export function explained(path: string, error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const known = TROUBLE[errcodeOf(error)];
  if (!known) return new EngineError(`SQLite failed on ${path}.`, { cause: error });
  return new EngineError(known.text(path), { cause: error, retryable: known.retryable });
}

const TROUBLE: Record<number, { text: (path: string) => string; retryable: boolean }> = {
  8: {
    text: (path) => `The lock file ${path} is read-only: Holdfast must be able to write it and its folder.`,
    retryable: false,
  },
  10: { text: (path) => `The lock file ${path} could not be read or written: an I/O error.`, retryable: true },
  11: {
    text: (path) => `The lock file ${path} is damaged. Stop all users of it and delete it: locks are made anew.`,
    retryable: false,
  },
  [FULL]: { text: (path) => `There is no space left for the lock file ${path}.`, retryable: true },
  14: {
    text: (path) => `The lock file ${path} can't be opened: its folder must exist and be writable.`,
    retryable: false,
  },
  26: { text: (path) => `${path} is no SQLite file. Holdfast needs a file of its own.`, retryable: false },
};
