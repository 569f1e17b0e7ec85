/** gRPC's frames: a byte that says whether it is compressed, four for the length, and the message. */
import type { Head } from '../../../kit/frame-reader.js';
import { WireError } from './wire.js';

/** More than any answer we ask for: the keys of a lease with 100,000 claims are half of it. */
export const LONGEST_MESSAGE = 16 * 1024 * 1024;

export const HEAD: Head = {
  bytes: 5,
  lengthIn: (head) => {
    if (head[0] !== 0) throw new WireError('a compressed message, which we did not ask for');
    const length = head.readUInt32BE(1);
    if (length > LONGEST_MESSAGE) throw new WireError('a message is too long');
    return length;
  },
};

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(HEAD.bytes + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  message.copy(framed, HEAD.bytes);
  return framed;
}
