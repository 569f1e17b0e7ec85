/** How the command line ends when it does not end with the child's own code. Numbers of sysexits.h where it has one. */
import { AcquireTimeoutError, EngineError, HoldfastError, LeaseLostError, MigrationLockError } from '../index.js';
import { printable } from './text.js';

export const EXIT = {
  noSuchClaim: 1,
  usage: 64,
  unreachable: 69,
  software: 70,
  migrating: 73,
  busy: 75,
  lost: 76,
  /** Lost, and something of the command could not be stopped. EX_NOPERM. */
  unstopped: 77,
  notExecutable: 126,
  notFound: 127,
  /** Plus the signal's number. */
  signal: 128,
} as const;

/** What goes to stderr, and the exit code. */
export class Failure extends Error {
  readonly exit: number;
  readonly code: string;

  constructor(exit: number, code: string, message: string) {
    super(message);
    this.exit = exit;
    this.code = code;
  }
}

export function usage(message: string): Failure {
  return new Failure(EXIT.usage, 'HOLDFAST_USAGE', printable(message));
}

/** Whatever was thrown, as a line and an exit code. */
export function asFailure(thrown: unknown): Failure {
  if (thrown instanceof Failure) return thrown;
  if (thrown instanceof HoldfastError) return new Failure(exitOf(thrown), thrown.code, thrown.message);
  return new Failure(
    EXIT.software,
    'HOLDFAST_INTERNAL',
    printable(thrown instanceof Error ? thrown.message : String(thrown)),
  );
}

function exitOf(error: HoldfastError): number {
  if (error instanceof MigrationLockError) return EXIT.migrating;
  if (error instanceof EngineError) return EXIT.unreachable;
  if (error instanceof AcquireTimeoutError) return EXIT.busy;
  if (error instanceof LeaseLostError) return EXIT.lost;
  // What is left are mistakes in what was asked for: a name, a URL, another number of permits.
  return EXIT.usage;
}
