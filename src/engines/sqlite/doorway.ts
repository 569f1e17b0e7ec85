/**
 * Between the end of a process and the thread that may be inside SQLite just then. `process.exit()` ends threads wherever they
 * are, and a native addon that is called at that moment may abort the whole process (exit code 134). So the process waits, for
 * as long as it would wait for the end of that thread anyway, until the call has returned, and lets no other one begin.
 */
const INSIDE = 1;
const SHUT = 2;
/** Longer than any call waits for a busy file: what takes longer does not come back. */
const LONGEST_CALL_MS = 15_000;

export class Doorway {
  readonly memory: SharedArrayBuffer;
  readonly #state: Int32Array;

  /** @param memory of the other side's. */
  constructor(memory = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#state = new Int32Array(memory);
  }

  /** The thread's: one call. Does nothing, and gives undefined, if the process is about to end. */
  within<T>(call: () => T): T | undefined {
    if (Atomics.compareExchange(this.#state, 0, 0, INSIDE) !== 0) return undefined;
    try {
      return call();
    } finally {
      Atomics.and(this.#state, 0, SHUT);
      Atomics.notify(this.#state, 0);
    }
  }

  /** The process's: lets no call begin any more, and returns when none is under way. */
  shut(): void {
    Atomics.or(this.#state, 0, SHUT);
    Atomics.wait(this.#state, 0, INSIDE | SHUT, LONGEST_CALL_MS);
  }
}

const open = new Set<Doorway>();

/** Shut when the process ends; until `forget` is called. One listener for all, or Node.js would warn of so many. */
export function shutAtExit(doorway: Doorway): { forget(): void } {
  if (open.size === 0) process.on('exit', shutAll);
  open.add(doorway);
  return {
    forget: () => {
      open.delete(doorway);
      if (open.size === 0) process.off('exit', shutAll);
    },
  };
}

function shutAll(): void {
  for (const doorway of open) doorway.shut();
}
