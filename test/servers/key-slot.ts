/** Which of the 16384 slots of a Redis Cluster a key belongs to: CRC-16/XMODEM of the key, or of its hash tag. */

export const SLOTS = 16_384;

export function slotOf(key: string): number {
  return crc16(Buffer.from(hashedPart(key))) % SLOTS;
}

/** What stands between the first `{` and the first `}` after it, if that is anything at all. */
function hashedPart(key: string): string {
  const open = key.indexOf('{');
  const close = key.indexOf('}', open + 1);
  return open === -1 || close <= open + 1 ? key : key.slice(open + 1, close);
}

function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021;
    crc &= 0xffff;
  }
  return crc;
}
