import type { SessionListener } from '../core/engine.js';

/**
 * The claims of a session that are not granted yet, as far as it knows. A claim belongs here before its enter is sent, because a
 * message may overtake the answer. Each is granted once, however often the engine says so.
 */
export class Awaited {
  readonly #listener: SessionListener;
  readonly #ids = new Set<string>();

  constructor(listener: SessionListener) {
    this.#listener = listener;
  }

  get size(): number {
    return this.#ids.size;
  }

  [Symbol.iterator](): Iterator<string> {
    return this.#ids.values();
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  add(id: string): void {
    this.#ids.add(id);
  }

  /** It has left, was refused, or its answer said that it holds. */
  delete(id: string): void {
    this.#ids.delete(id);
  }

  clear(): void {
    this.#ids.clear();
  }

  granted(id: string, token: bigint): void {
    if (this.#ids.delete(id)) this.#listener.granted(id, token);
  }

  /** It stands in line until it has left, and may be granted before that. */
  evicted(id: string, reason: string): void {
    this.#listener.lost(id, { reason: 'evicted', detail: reason });
  }
}
