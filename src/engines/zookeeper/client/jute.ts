/**
 * Jute, the encoding of ZooKeeper's messages: numbers of 4 and 8 bytes, big end first; bytes and text behind their length; lists
 * behind their count; fields without names, one after the other.
 *
 * What comes in is from a network: every length is checked against what is there before it is used, and whatever can't be
 * read is a WireError, which costs the connection and nothing more.
 */
import { WireError } from '../../../kit/frame-reader.js';

/** The length that stands for "nothing". */
const NOTHING = -1;
/** Of a list: the names of as many nodes, or the paths of as many claims of one session. An empty name has four bytes. */
const MOST_ITEMS = 250_000;

export class Writer {
  #buffer = Buffer.allocUnsafe(256);
  #length = 0;

  int(value: number): this {
    this.#reserve(4);
    this.#length = this.#buffer.writeInt32BE(value, this.#length);
    return this;
  }

  long(value: bigint): this {
    this.#reserve(8);
    this.#length = this.#buffer.writeBigInt64BE(value, this.#length);
    return this;
  }

  bool(value: boolean): this {
    this.#reserve(1);
    this.#buffer[this.#length++] = value ? 1 : 0;
    return this;
  }

  bytes(value: Uint8Array | undefined): this {
    if (!value) return this.int(NOTHING);
    this.int(value.length);
    this.#reserve(value.length);
    this.#buffer.set(value, this.#length);
    this.#length += value.length;
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  list<T>(items: readonly T[], write: (writer: this, item: T) => unknown): this {
    this.int(items.length);
    for (const item of items) write(this, item);
    return this;
  }

  finish(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#buffer.length, this.#length + more));
    this.#buffer.copy(larger, 0, 0, this.#length);
    this.#buffer = larger;
  }
}

export class Reader {
  readonly #buffer: Buffer;
  #at = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  get atEnd(): boolean {
    return this.#at === this.#buffer.length;
  }

  int(): number {
    return this.#buffer.readInt32BE(this.#pass(4));
  }

  long(): bigint {
    return this.#buffer.readBigInt64BE(this.#pass(8));
  }

  bool(): boolean {
    return this.#buffer[this.#pass(1)] !== 0;
  }

  /** A part of what was received, not a copy of it. Nothing and no bytes are the same to us. */
  bytes(): Buffer {
    const length = this.int();
    if (length < NOTHING) throw new WireError('a length is negative');
    const from = this.#pass(Math.max(0, length));
    return this.#buffer.subarray(from, this.#at);
  }

  text(): string {
    return this.bytes().toString();
  }

  /** Each item takes at least a byte: a count beyond what is there is refused when that is used up. */
  list<T>(read: (reader: this) => T): T[] {
    const count = this.int();
    if (count > MOST_ITEMS) throw new WireError('a list is too long');
    const items: T[] = [];
    for (let at = 0; at < count; at += 1) items.push(read(this));
    return items;
  }

  /** @returns where it was. */
  #pass(count: number): number {
    const from = this.#at;
    if (count > this.#buffer.length - from) throw new WireError('a message is cut off');
    this.#at += count;
    return from;
  }
}
