/**
 * Who gives up when a signal aborts. One listener for each signal, whatever the number of waiters: a process's shutdown
 * signal is handed to thousands of acquires, and Node warns of a leak from the eleventh listener on.
 */
interface Quitter {
  reject(reason: unknown): void;
}

const watched = new WeakMap<AbortSignal, { quitters: Set<Quitter>; listener: () => void }>();

export function quitOnAbort(signal: AbortSignal, quitter: Quitter): void {
  const existing = watched.get(signal);
  if (existing) {
    existing.quitters.add(quitter);
    return;
  }
  const quitters = new Set([quitter]);
  const listener = (): void => {
    watched.delete(signal);
    for (const each of quitters) each.reject(signal.reason);
  };
  watched.set(signal, { quitters, listener });
  signal.addEventListener('abort', listener, { once: true });
}

export function forgetAbort(signal: AbortSignal, quitter: Quitter): void {
  const watch = watched.get(signal);
  if (!watch?.quitters.delete(quitter) || watch.quitters.size > 0) return;
  watched.delete(signal);
  signal.removeEventListener('abort', watch.listener);
}
