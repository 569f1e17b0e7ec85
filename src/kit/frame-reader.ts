/**
 * Cuts a stream of bytes into messages, each behind a head that tells its length.
 *
 *     head │ message │ head │ message │ head │ mess
 *                                              └ kept until the rest has come
 *
 * What can go wrong: a length may be anything, by a fault or by intent, and so may the pieces be: a message of a megabyte can come
 * byte by byte. So nothing is allocated by a length that was received, nor by the number of pieces: what is kept is one buffer,
 * at most a few times as long as what has come, and no longer than the message. Which lengths can't be, the protocol says.
 */

/** Bytes that are no message of the protocol's. They cost the connection, and nothing more. */
export class WireError extends Error {
  override readonly name: string = 'WireError';
}

export interface Head {
  readonly bytes: number;
  /** How long the message after this head is. Throws for what can't be a head; the stream is of no more use then. */
  lengthIn(head: Buffer): number;
}

const NOTHING: Buffer = Buffer.alloc(0);
/** At least, where a message comes in pieces: its head and most messages fit. */
const LEAST_ROOM = 1_024;
/** Room that is never used costs nothing; what has been outgrown does, until it is collected. */
const GROWTH = 8;

export class FrameReader {
  readonly #head: Head;
  /** What has come of the next message, and room for more of it. */
  #kept: Buffer = NOTHING;
  #size = 0;
  /** How long the next message is with its head, as far as we know. */
  #whole = Number.POSITIVE_INFINITY;

  constructor(head: Head) {
    this.#head = head;
  }

  /** The messages that are complete now. They are parts of what has come, not copies of it. */
  push(piece: Buffer): Buffer[] {
    const { bytes } = this.#head;
    let rest = this.#size === 0 ? piece : this.#append(piece);
    const messages: Buffer[] = [];
    for (let length = this.#next(rest); length !== undefined; length = this.#next(rest)) {
      messages.push(rest.subarray(bytes, bytes + length));
      rest = rest.subarray(bytes + length);
    }
    this.#keep(rest, messages.length > 0);
    return messages;
  }

  /** Whether a message was begun and not finished. */
  get partial(): boolean {
    return this.#size > 0;
  }

  /** The length of the next message, if all of it is there. */
  #next(rest: Buffer): number | undefined {
    const { bytes } = this.#head;
    this.#whole = Number.POSITIVE_INFINITY;
    if (rest.length < bytes) return undefined;
    const length = this.#head.lengthIn(rest);
    this.#whole = bytes + length;
    return rest.length < this.#whole ? undefined : length;
  }

  /** What is kept already stays as it is: only messages that were handed out must not be written over. */
  #keep(rest: Buffer, isNew: boolean): void {
    if (!isNew && this.#size > 0) return;
    this.#kept = rest.length === 0 ? NOTHING : rest;
    this.#size = rest.length;
  }

  #append(piece: Buffer): Buffer {
    const size = this.#size + piece.length;
    if (size > this.#kept.length) {
      const larger = Buffer.allocUnsafe(
        Math.max(size, Math.min(this.#whole, Math.max(LEAST_ROOM, GROWTH * this.#size))),
      );
      this.#kept.copy(larger, 0, 0, this.#size);
      this.#kept = larger;
    }
    piece.copy(this.#kept, this.#size);
    this.#size = size;
    return this.#kept.subarray(0, size);
  }
}
