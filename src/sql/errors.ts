import { EngineError, HoldfastError } from '../core/errors.js';
import { brand } from '../core/one-library.js';

/** Somebody else has the lock that migrations are made under, and did not give it back while we waited. Nothing was changed. */
export class MigrationLockError extends EngineError {
  static {
    brand(this, 'MigrationLockError');
  }

  override readonly code = 'HOLDFAST_MIGRATING';

  /** @param lock the name that an operator finds it by @param holder who has it, where the server tells */
  constructor(lock: string, holder?: string) {
    super(
      `The tables of Holdfast can't be made or brought up to date now: another has the migration lock ${lock}` +
        `${holder === undefined ? '' : ` (${holder})`}. Nothing was changed. Wait until it is done, or end it.`,
    );
  }
}

/** An optimistic row was changed by others every time we tried. Nothing was written. */
export class ConflictError extends HoldfastError {
  static {
    brand(this, 'ConflictError');
  }

  readonly attempts: number;

  constructor(what: string, attempts: number) {
    super(
      'HOLDFAST_CONFLICT',
      `${what} was changed by others in each of ${attempts} tries. Nothing was written; try later, allow more retries, or take a lock.`,
    );
    this.attempts = attempts;
  }
}
