/**
 * What memcached answers, cut out of a stream: a line, and after `VA <size>` a value. It never keeps more than it was
 * promised, and never believes a size that it did not check.
 */
export interface Reply {
  /** `HD` done, `VA` a value, `EN` nothing there, `NS` not stored, `EX` another version, `NF` not found, … */
  readonly code: string;
  /** What follows: flags like `c17`. */
  readonly flags: readonly string[];
  readonly value: string | undefined;
}

/** memcached's lines have a key at most, and its values are not larger than this unless it was told so. */
const LONGEST_LINE = 2_048;
const LARGEST_VALUE = 1_048_576;

const LINE_END = Buffer.from('\r\n');

export class ReplyParser {
  #rest: Buffer = Buffer.alloc(0);
  /** What came while a value is not complete, and how much is missing: it is put together once, not with every piece. */
  #pieces: Buffer[] = [];
  #missing = 0;

  /** The replies that are complete now. Throws where the stream can't be understood: it is of no use any more. */
  push(chunk: Buffer): Reply[] {
    this.#pieces.push(chunk);
    this.#missing -= chunk.length;
    if (this.#missing > 0) return [];
    this.#rest =
      this.#rest.length === 0 && this.#pieces.length === 1 ? chunk : Buffer.concat([this.#rest, ...this.#pieces]);
    this.#pieces = [];
    this.#missing = 0;
    const replies: Reply[] = [];
    for (let reply = this.#next(); reply; reply = this.#next()) replies.push(reply);
    return replies;
  }

  #next(): Reply | undefined {
    const end = this.#rest.indexOf(LINE_END);
    if (end === -1) {
      if (this.#rest.length > LONGEST_LINE) throw new Error('memcached sent a line without an end.');
      return undefined;
    }
    if (end > LONGEST_LINE) throw new Error('memcached sent a line that is too long.');
    const [code = '', ...flags] = this.#rest.toString('latin1', 0, end).split(' ');
    const after = end + LINE_END.length;
    if (code !== 'VA') {
      this.#rest = this.#rest.subarray(after);
      return { code, flags, value: undefined };
    }
    const [size = '', ...others] = flags;
    if (!/^\d{1,7}$/.test(size) || Number(size) > LARGEST_VALUE) throw new Error('memcached sent a value of no size.');
    const valueEnd = after + Number(size);
    this.#missing = Math.max(0, valueEnd + LINE_END.length - this.#rest.length);
    if (this.#missing > 0) return undefined;
    if (!this.#rest.subarray(valueEnd, valueEnd + LINE_END.length).equals(LINE_END))
      throw new Error('memcached sent a value of another size than it said.');
    const value = this.#rest.toString('latin1', after, valueEnd);
    this.#rest = this.#rest.subarray(valueEnd + LINE_END.length);
    return { code, flags: others, value };
  }
}

/** `c17` → 17 for the flag c. */
export function flag({ flags }: Reply, name: string): string | undefined {
  return flags.find((text) => text.startsWith(name))?.slice(1);
}
