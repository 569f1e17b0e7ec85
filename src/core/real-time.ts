/**
 * Time and timers as they were when this module was loaded. Test runners (vitest, jest, sinon, node:test) replace the global
 * ones for the code under test; a lock that followed would lose its lease whenever a test winds its clock on. Modules import
 * these under the names of the globals, and the linter keeps the globals themselves out of the library.
 */
export let { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, queueMicrotask } = globalThis;
export const nextTick = process.nextTick.bind(process);
export const hrtime = { bigint: process.hrtime.bigint.bind(process.hrtime) };
/** Of these two the runners replace a method, so the object as it is would not do. */
export const performance = { now: globalThis.performance.now.bind(globalThis.performance) };
export const Date = { now: globalThis.Date.now };

/** Takes the globals as they are now: for tests of ours that hold time for a client with timers of its own. */
export function captureTime(): void {
  ({ setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, queueMicrotask } = globalThis);
  performance.now = globalThis.performance.now.bind(globalThis.performance);
  Date.now = globalThis.Date.now;
}

/** Rejects with the reason of the signal when that aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', aborted);
      resolve();
    }, ms);
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    if (signal?.aborted) aborted();
    else signal?.addEventListener('abort', aborted, { once: true });
  });
}
