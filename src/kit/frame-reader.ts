/**
 * Cuts a stream of bytes into messages, each behind a head that tells its length.
 *
 *     head │ message │ head │ message │ head │ mess
 *                                              └ kept until the rest has come
 *
 * What can go wrong: a length may be anything, by a fault or by intent. Nothing is allocated by a length that was received:
 * pieces are kept as they came, and joined when all of a message is there. Which lengths can't be, the protocol says.
 */
export interface Head {
  readonly bytes: number;
  /** How long the message after this head is. Throws for what can't be a head; the stream is of no more use then. */
  lengthIn(head: Buffer): number;
}

export class FrameReader {
  readonly #head: Head;
  #pieces: Buffer[] = [];
  #size = 0;

  constructor(head: Head) {
    this.#head = head;
  }

  /** The messages that are complete now. */
  push(piece: Buffer): Buffer[] {
    const { bytes } = this.#head;
    this.#pieces.push(piece);
    this.#size += piece.length;
    const messages: Buffer[] = [];
    for (let length = this.#next(); length !== undefined; length = this.#next()) {
      const all = this.#join();
      messages.push(all.subarray(bytes, bytes + length));
      this.#size -= bytes + length;
      this.#pieces = this.#size === 0 ? [] : [all.subarray(bytes + length)];
    }
    return messages;
  }

  /** Whether a message was begun and not finished. */
  get partial(): boolean {
    return this.#size > 0;
  }

  /** The length of the next message, if all of it is there. */
  #next(): number | undefined {
    const { bytes } = this.#head;
    if (this.#size < bytes) return undefined;
    const head = this.#pieces[0]!.length < bytes ? this.#join() : this.#pieces[0]!;
    const length = this.#head.lengthIn(head);
    return this.#size < bytes + length ? undefined : length;
  }

  #join(): Buffer {
    const all = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#size);
    this.#pieces = [all];
    return all;
  }
}
