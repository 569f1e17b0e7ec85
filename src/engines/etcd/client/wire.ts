/**
 * The little of Protocol Buffers that etcd's messages need: varints, bytes, strings and messages in messages.
 *
 * A message is a table of fields; its type follows from the table, so what is written and what is read can't drift apart.
 * What comes in is from a network: every length is checked against what is there before it is used, unknown fields are
 * skipped, and anything else that can't be read is a WireError, which costs the connection and nothing more. Two bytes can be
 * a whole message, and an object of fifty times as many in memory: so a message may have so many of them and no more.
 */
import { WireError } from '../../../kit/frame-reader.js';

/** More than anybody needs to tell us: a larger answer to the same question would be of no use either. */
export class TooMuchError extends WireError {
  override readonly name = 'TooMuchError';
}

const VARINT = 0;
const FIXED64 = 1;
const DELIMITED = 2;
const FIXED32 = 5;
/** Sixty-four bits in groups of seven. */
const LONGEST_VARINT = 10;
/** Our messages nest four levels deep; a hostile one must not exhaust the stack. */
const DEEPEST = 16;
/** Of all messages in a message. A claim has seven; reading a million takes a fraction of a second. */
const MOST_FIELDS = 1_000_000;

/** How values of one type are written and read. */
export interface Kind<T> {
  readonly wireType: typeof VARINT | typeof DELIMITED;
  readonly absent: T;
  /** Messages are absent, everything else has a value of its own for that. */
  write(writer: Writer, value: T): void;
  read(reader: Reader, depth: number): T;
}

export const int64: Kind<bigint> = {
  wireType: VARINT,
  absent: 0n,
  write: (writer, value) => writer.varint64(value),
  read: (reader) => reader.varint64(),
};

/** Enumerations and small numbers. */
export const uint: Kind<number> = {
  wireType: VARINT,
  absent: 0,
  write: (writer, value) => writer.varint(value),
  read: (reader) => Number(BigInt.asUintN(32, reader.varint64())),
};

export const bool: Kind<boolean> = {
  wireType: VARINT,
  absent: false,
  write: (writer, value) => writer.varint(value ? 1 : 0),
  read: (reader) => reader.varint64() !== 0n,
};

export const bytes: Kind<Uint8Array> = {
  wireType: DELIMITED,
  absent: new Uint8Array(0),
  write: (writer, value) => writer.bytes(value),
  read: (reader) => reader.bytes(),
};

export const string: Kind<string> = {
  wireType: DELIMITED,
  absent: '',
  write: (writer, value) => writer.bytes(Buffer.from(value)),
  read: (reader) => {
    const { buffer, byteOffset, length } = reader.bytes();
    return Buffer.from(buffer, byteOffset, length).toString();
  },
};

export interface Field<T> {
  readonly number: number;
  readonly kind: Kind<unknown>;
  readonly repeated: boolean;
  readonly type?: T;
}

export function one<T>(number: number, kind: Kind<T>): Field<T> {
  return { number, kind, repeated: false };
}

export function many<T>(number: number, kind: Kind<T>): Field<readonly Exclude<T, undefined>[]> {
  return { number, kind, repeated: true };
}

type Fields = Readonly<Record<string, Field<unknown>>>;

export type Values<F extends Fields> = { readonly [name in keyof F]: F[name] extends Field<infer T> ? T : never };

export interface Message<T> extends Kind<T | undefined> {
  encode(value: Loose<T>): Buffer;
  /** @param mostItems messages in it, and entries of its lists. */
  decode(buffer: Uint8Array, mostItems?: number): T;
}

/** What a message of this kind carries, all of it. */
export type Received<M> = M extends Message<infer T> ? T : never;
/** What of it is sent: everything may be left out. */
export type Sent<M> = Loose<Received<M>>;
type Loose<T> = T extends bigint | number | boolean | string | Uint8Array | undefined
  ? T
  : T extends readonly (infer Item)[]
    ? readonly Loose<Item>[]
    : { readonly [name in keyof T]?: Loose<T[name]> | undefined };

export function message<F extends Fields>(fields: F): Message<Values<F>> {
  const known = Object.entries(fields);
  const byNumber = new Map(known.map(([name, field]) => [field.number, { name, ...field }]));

  const write = (writer: Writer, value: Readonly<Record<string, unknown>>): void => {
    for (const [name, { number, kind, repeated }] of known) {
      const content = value[name];
      if (content === undefined) continue;
      for (const item of repeated ? (content as readonly unknown[]) : [content]) {
        writer.varint((number << 3) | kind.wireType);
        kind.write(writer, item);
      }
    }
  };

  const read = (reader: Reader, depth: number): Values<F> => {
    if (depth > DEEPEST) throw new WireError('messages are nested too deeply');
    const values: Record<string, unknown> = {};
    for (const [name, { kind, repeated }] of known) values[name] = repeated ? [] : kind.absent;
    while (!reader.atEnd) {
      const tag = reader.tag();
      const field = byNumber.get(tag.number);
      const isKnown = field?.kind.wireType === tag.wireType;
      reader.budget.spend(isKnown && (field.repeated || field.kind.absent === undefined));
      if (!isKnown) reader.skip(tag.wireType);
      else if (field.repeated) (values[field.name] as unknown[]).push(field.kind.read(reader, depth));
      else values[field.name] = field.kind.read(reader, depth);
    }
    return values as Values<F>;
  };

  return {
    wireType: DELIMITED,
    absent: undefined,
    write: (writer, value) => writer.nested((inner) => write(inner, value ?? {})),
    read: (reader, depth) => read(new Reader(reader.bytes(), reader.budget), depth + 1),
    encode: (value) => {
      const writer = new Writer();
      write(writer, value as Readonly<Record<string, unknown>>);
      return writer.finish();
    },
    decode: (buffer, mostItems = MOST_FIELDS) => read(new Reader(buffer, new Budget(mostItems)), 0),
  };
}

class Writer {
  #buffer = Buffer.allocUnsafe(256);
  #length = 0;

  varint(value: number): void {
    this.#reserve(LONGEST_VARINT);
    let rest = value;
    while (rest > 0x7f) {
      this.#buffer[this.#length++] = (rest & 0x7f) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#buffer[this.#length++] = rest;
  }

  varint64(value: bigint): void {
    if (value >= 0n && value <= BigInt(Number.MAX_SAFE_INTEGER)) return this.varint(Number(value));
    this.#reserve(LONGEST_VARINT);
    let rest = BigInt.asUintN(64, value);
    while (rest > 0x7fn) {
      this.#buffer[this.#length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.#buffer[this.#length++] = Number(rest);
  }

  bytes(value: Uint8Array): void {
    this.varint(value.length);
    this.#append(value);
  }

  nested(write: (inner: Writer) => void): void {
    const inner = new Writer();
    write(inner);
    this.bytes(inner.#buffer.subarray(0, inner.#length));
  }

  finish(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  #append(value: Uint8Array): void {
    this.#reserve(value.length);
    this.#buffer.set(value, this.#length);
    this.#length += value.length;
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#buffer.length, this.#length + more));
    this.#buffer.copy(larger, 0, 0, this.#length);
    this.#buffer = larger;
  }
}

/** What one message may cost, with all that are in it. */
class Budget {
  #fields = MOST_FIELDS;
  #items: number;

  constructor(mostItems: number) {
    this.#items = mostItems;
  }

  spend(isItem: boolean): void {
    this.#fields -= 1;
    if (isItem) this.#items -= 1;
    if (this.#items < 0 || this.#fields < 0) throw new TooMuchError('it has too many parts');
  }
}

class Reader {
  readonly budget: Budget;
  readonly #buffer: Uint8Array;
  #at = 0;

  constructor(buffer: Uint8Array, budget: Budget) {
    this.#buffer = buffer;
    this.budget = budget;
  }

  get atEnd(): boolean {
    return this.#at >= this.#buffer.length;
  }

  tag(): { readonly number: number; readonly wireType: number } {
    const tag = Number(BigInt.asUintN(32, this.varint64()));
    return { number: tag >>> 3, wireType: tag & 7 };
  }

  varint64(): bigint {
    // Most are small: five groups fit a double without loss.
    let low = 0;
    for (let group = 0, unit = 1; group < 5; group += 1, unit *= 0x80) {
      const byte = this.#byte();
      low += (byte & 0x7f) * unit;
      if (byte < 0x80) return BigInt(low);
    }
    let value = BigInt(low);
    for (let group = 5; group < LONGEST_VARINT; group += 1) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << BigInt(7 * group);
      if (byte < 0x80) return BigInt.asIntN(64, value);
    }
    throw new WireError('a number does not end');
  }

  /** A part of what was received, not a copy of it. */
  bytes(): Uint8Array {
    const length = this.varint64();
    if (length < 0n || length > BigInt(this.#buffer.length - this.#at)) throw new WireError('a field is cut off');
    const from = this.#at;
    this.#at += Number(length);
    return this.#buffer.subarray(from, this.#at);
  }

  skip(wireType: number): void {
    if (wireType === VARINT) this.varint64();
    else if (wireType === DELIMITED) this.bytes();
    else if (wireType === FIXED64) this.#pass(8);
    else if (wireType === FIXED32) this.#pass(4);
    else throw new WireError('a field of an unknown type');
  }

  #byte(): number {
    const byte = this.#buffer[this.#at];
    if (byte === undefined) throw new WireError('a number is cut off');
    this.#at += 1;
    return byte;
  }

  #pass(count: number): void {
    if (count > this.#buffer.length - this.#at) throw new WireError('a field is cut off');
    this.#at += count;
  }
}
