/** Time for clients with timers of their own that speak to real sockets: what never comes is waited for, but not long. */
import { vi } from 'vitest';
import { captureTime } from '../../../src/core/real-time.js';

const realSetTimeout = globalThis.setTimeout;
const STEP_MS = 20;

/** Ends with the test, by `releaseTime()`. */
export function holdTime(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
  captureTime();
}

export function releaseTime(): void {
  vi.useRealTimers();
  captureTime();
}

/**
 * Lets time pass until the work is settled: a little after each round of the event loop, in which whatever has come is
 * heard. So a machine that is busy hears as much of it as any other.
 */
export async function lapse<T>(work: Promise<T>): Promise<T> {
  const state = { settled: false };
  const settle = (): void => void (state.settled = true);
  work.then(settle, settle);
  while (!state.settled) {
    await new Promise((resolve) => realSetTimeout(resolve, 1));
    vi.advanceTimersByTime(STEP_MS);
  }
  return work;
}
