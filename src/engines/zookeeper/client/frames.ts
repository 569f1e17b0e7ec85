/** Frames: four bytes for the length, and the message. */
import { WireError } from './jute.js';

const HEAD_BYTES = 4;

/** More than any answer that we ask for: the names of 100,000 claims are half of it. */
export const LONGEST_FRAME = 16 * 1024 * 1024;

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(HEAD_BYTES + message.length);
  framed.writeInt32BE(message.length, 0);
  message.copy(framed, HEAD_BYTES);
  return framed;
}

/**
 * Cuts what arrives into messages. Nothing is allocated by a length that was received: pieces are kept as they came, and
 * joined when all of a message is there.
 */
export class FrameReader {
  #pieces: Buffer[] = [];
  #size = 0;

  /** The messages that are complete now. */
  push(piece: Buffer): Buffer[] {
    this.#pieces.push(piece);
    this.#size += piece.length;
    const messages: Buffer[] = [];
    for (let length = this.#next(); length !== undefined; length = this.#next()) {
      const all = this.#join();
      messages.push(all.subarray(HEAD_BYTES, HEAD_BYTES + length));
      this.#size -= HEAD_BYTES + length;
      this.#pieces = this.#size === 0 ? [] : [all.subarray(HEAD_BYTES + length)];
    }
    return messages;
  }

  /** Whether a message was begun and not finished. */
  get partial(): boolean {
    return this.#size > 0;
  }

  /** The length of the next message, if all of it is there. */
  #next(): number | undefined {
    if (this.#size < HEAD_BYTES) return undefined;
    const head = this.#pieces[0]!.length < HEAD_BYTES ? this.#join() : this.#pieces[0]!;
    const length = head.readInt32BE(0);
    if (length < 0 || length > LONGEST_FRAME) throw new WireError('a message has an impossible length');
    return this.#size < HEAD_BYTES + length ? undefined : length;
  }

  #join(): Buffer {
    const all = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#size);
    this.#pieces = [all];
    return all;
  }
}
