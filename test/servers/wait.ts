/** Waiting for conditions of servers, which say nothing when they become true. */
import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 10;
/** A look at a whole topology costs a dozen connections, whose ports the kernel keeps for a minute. */
const EVENTUALLY_POLL_MS = 50;
/**
 * Elections and rejoining take seconds on a busy machine; what takes longer than this does not happen. A Sentinel that was
 * kept from running for two seconds trusts nobody, itself included, for thirty (TILT), and only then elects.
 */
const EVENTUALLY_WITHIN_MS = 50_000;

/** Whether the condition became true in time. */
export async function waitFor(condition: () => boolean | Promise<boolean>, withinMs: number): Promise<boolean> {
  const end = Date.now() + withinMs;
  for (;;) {
    if (await condition()) return true;
    if (Date.now() > end) return false;
    await sleep(POLL_MS);
  }
}

/** Tries again until it does not throw. When the time is over, the error says what was missing at the last look. */
export async function eventually<T>(what: string, attempt: () => Promise<T>): Promise<T> {
  const end = Date.now() + EVENTUALLY_WITHIN_MS;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() > end) {
        const missing = error instanceof Error ? error.message : String(error);
        throw new Error(`not in ${EVENTUALLY_WITHIN_MS} ms: ${what}. At last: ${missing}`, { cause: error });
      }
    }
    await sleep(EVENTUALLY_POLL_MS);
  }
}
