import { EngineError, type Lease } from '../index.js';

/** A promise whose state can be seen, for what must *not* have happened yet. Its rejection is never unhandled. */
export class Tracked<T> {
  readonly promise: Promise<T>;
  #state: 'pending' | 'fulfilled' | 'rejected' = 'pending';

  constructor(promise: Promise<T>) {
    this.promise = promise;
    promise.then(
      () => (this.#state = 'fulfilled'),
      () => (this.#state = 'rejected'),
    );
  }

  get state(): 'pending' | 'fulfilled' | 'rejected' {
    return this.#state;
  }
}

export function track<T>(promise: Promise<T>): Tracked<T> {
  return new Tracked(promise);
}

/** A promise and the function that resolves it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open!: () => void;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Resolves when the signal aborts, to its reason. */
export function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener('abort', () => resolve(signal.reason), { once: true });
  });
}

/** A try that a busy machine could not ask for in time holds nothing. */
export async function answered(attempt: Promise<Lease | undefined>): Promise<Lease | undefined> {
  try {
    return await attempt;
  } catch (error) {
    if (error instanceof EngineError && error.retryable) return undefined;
    throw error;
  }
}
