/** gRPC's frames: a byte that says whether it is compressed, four for the length, and the message. */
import { type Head, WireError } from '../../../kit/frame-reader.js';
import { TooMuchError } from './wire.js';

const KIB = 1_024;

/** How large an answer may be, by what was asked for. */
export const MOST = {
  /** A few numbers, and the token of a user. */
  numbers: { bytes: 64 * KIB, items: 100 },
  /** Names of letters: 1,000. */
  letters: { bytes: 256 * KIB, items: 2_000 },
  /** A line, or what happened to it: 10,000 claims. */
  keys: { bytes: 4 * KIB * KIB, items: 30_000 },
} as const satisfies Readonly<Record<string, Most>>;

/** The keys of a lease, under which we have so many: few names are long, and few keys are there that we do not know of. */
export function mostOfLease(claims: number): Most {
  return { bytes: Math.min(16 * KIB * KIB, KIB * KIB + 2 * KIB * claims), items: 10_000 + 2 * claims };
}

export interface Most {
  readonly bytes: number;
  /** Messages in a message, and entries of its lists. */
  readonly items: number;
}

const HEAD_BYTES = 5;

export function headOf(longest: number): Head {
  return {
    bytes: HEAD_BYTES,
    lengthIn: (head) => {
      if (head[0] !== 0) throw new WireError('a compressed message, which we did not ask for');
      const length = head.readUInt32BE(1);
      if (length > longest) throw new TooMuchError('a message is too long');
      return length;
    },
  };
}

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(HEAD_BYTES + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  message.copy(framed, HEAD_BYTES);
  return framed;
}
