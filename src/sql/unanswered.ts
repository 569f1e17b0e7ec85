/** A COMMIT that was sent and not answered: the connection went, and the server may have carried it out or not. */
import { EngineError } from '../core/errors.js';

export function unanswered(cause: unknown): EngineError {
  return new EngineError(
    'The connection was lost at COMMIT, so the transaction may have been committed or not. Look at what it has written before you try ' +
      'it again.',
    { retryable: false, cause },
  );
}
