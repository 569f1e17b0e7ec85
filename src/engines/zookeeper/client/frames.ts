/** Frames: four bytes for the length, and the message. */
import { type Head, WireError } from '../../../kit/frame-reader.js';

/** More than any answer that we ask for: what goes with a session of 80,000 claims. */
export const LONGEST_FRAME = 8 * 1024 * 1024;

const HEAD_BYTES = 4;

/** @param longest that the next message may be. */
export function headOf(longest: () => number): Head {
  return {
    bytes: HEAD_BYTES,
    lengthIn: (head) => {
      const length = head.readInt32BE(0);
      if (length < 0 || length > longest()) throw new WireError('a message has an impossible length');
      return length;
    },
  };
}

export const HEAD: Head = headOf(() => LONGEST_FRAME);

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(HEAD_BYTES + message.length);
  framed.writeInt32BE(message.length, 0);
  message.copy(framed, HEAD_BYTES);
  return framed;
}
