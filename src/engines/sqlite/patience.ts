import { EngineError } from '../../core/errors.js';
import { sleep } from '../../core/real-time.js';
import { explained, isBusy } from './errors.js';
import { monotonicMs } from './host.js';

/** A busy database is asked again for this long. */
const PATIENCE_MS = 5_000;
/** A transaction takes a fraction of the first pause. If it is busy for longer, so many are at it that asking costs them time. */
const FIRST_PAUSE_MS = 8;
const LONGEST_PAUSE_MS = 64;
const GROWTH = 1.2;

/**
 * Again and again while the file is busy, with random pauses that grow: SQLite's own way of waiting would block the event loop.
 * They are the file's, as the latency of a network would be: no matter of the injected clock.
 */
export async function patiently<T>(path: string, work: () => T): Promise<T> {
  const deadline = monotonicMs() + PATIENCE_MS;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * GROWTH)) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error)) throw explained(path, error);
      if (monotonicMs() > deadline) throw new EngineError(`The lock file ${path} was busy for ${PATIENCE_MS} ms.`);
    }
    await sleep(1 + Math.random() * (pauseMs - 1));
  }
}
