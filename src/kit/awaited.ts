import type { SessionListener } from '../core/engine.js';
import { parseMessage } from './message.js';

/**
 * The claims of a session that are not granted yet, as far as it knows. A claim belongs here before its enter is sent, because a
 * message may overtake the answer. Each is granted once, however often the engine says so.
 *
 * Where grants come as messages, a claim has a nonce. The session chooses it, the engine keeps it with the claim when that enters
 * and tells it once, with the grant: who knows it has it from the engine. It is of no use for anything else, and after the
 * grant of none at all, so it does not matter who reads the message.
 */
export class Awaited {
  readonly #listener: SessionListener;
  readonly #newNonce: () => string;
  readonly #nonces = new Map<string, string>();

  /** @param newNonce an unguessable text without white space; by default grants are never told by messages. */
  constructor(listener: SessionListener, newNonce: () => string = () => '') {
    this.#listener = listener;
    this.#newNonce = newNonce;
  }

  get size(): number {
    return this.#nonces.size;
  }

  [Symbol.iterator](): Iterator<string> {
    return this.#nonces.keys();
  }

  has(id: string): boolean {
    return this.#nonces.has(id);
  }

  /** @returns its nonce. A claim that enters again keeps it, as the engine keeps the first that it was told. */
  add(id: string): string {
    let nonce = this.#nonces.get(id);
    if (nonce === undefined) this.#nonces.set(id, (nonce = this.#newNonce()));
    return nonce;
  }

  /** It has left, was refused, or its answer said that it holds. */
  delete(id: string): void {
    this.#nonces.delete(id);
  }

  /** The enter with this nonce was answered, and does not wait. A claim that has left and entered again since has another nonce. */
  answered(id: string, nonce: string): void {
    if (this.#nonces.get(id) === nonce) this.#nonces.delete(id);
  }

  clear(): void {
    this.#nonces.clear();
  }

  /** The engine has answered so. */
  granted(id: string, token: bigint): void {
    if (this.#nonces.delete(id)) this.#listener.granted(id, token);
  }

  /** The engine has answered so. It stands in line until it has left, and may be granted before that. */
  evicted(id: string, reason: string): void {
    this.#listener.lost(id, { reason: 'evicted', detail: reason });
  }

  /** A message came. What it does not prove is a reason to look, if it is about us at all. */
  heard(text: string): void {
    const message = parseMessage(text);
    if (!message) return;
    const nonce = this.#nonces.get(message.id);
    if (message.what === 'granted' && nonce && message.nonce === nonce) this.granted(message.id, message.token);
    else if (message.what === 'evicted' || nonce !== undefined) this.#listener.hinted();
  }
}
