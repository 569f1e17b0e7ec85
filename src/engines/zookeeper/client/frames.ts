/** Frames: four bytes for the length, and the message. */
import type { Head } from '../../../kit/frame-reader.js';
import { WireError } from './jute.js';

/** More than any answer that we ask for: the names of 100,000 claims are half of it. */
export const LONGEST_FRAME = 16 * 1024 * 1024;

export const HEAD: Head = {
  bytes: 4,
  lengthIn: (head) => {
    const length = head.readInt32BE(0);
    if (length < 0 || length > LONGEST_FRAME) throw new WireError('a message has an impossible length');
    return length;
  },
};

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(HEAD.bytes + message.length);
  framed.writeInt32BE(message.length, 0);
  message.copy(framed, HEAD.bytes);
  return framed;
}
