/** gRPC's frames: a byte that says whether it is compressed, four for the length, and the message. */
import { WireError } from './wire.js';

const HEAD_BYTES = 5;

/** More than any answer we ask for: the keys of a lease with 100,000 claims are half of it. */
export const LONGEST_MESSAGE = 16 * 1024 * 1024;

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(HEAD_BYTES + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
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
    if (head[0] !== 0) throw new WireError('a compressed message, which we did not ask for');
    const length = head.readUInt32BE(1);
    if (length > LONGEST_MESSAGE) throw new WireError('a message is too long');
    return this.#size < HEAD_BYTES + length ? undefined : length;
  }

  #join(): Buffer {
    const all = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#size);
    this.#pieces = [all];
    return all;
  }
}
