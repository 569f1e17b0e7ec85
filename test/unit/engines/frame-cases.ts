/** What the wire tests of etcd and ZooKeeper share: bytes that went wrong, and what is promised about frames. */
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FrameReader, type Head } from '../../../src/kit/frame-reader.js';

const bytes = fc.uint8Array({ maxLength: 300 });

interface Corruption {
  readonly how: 'cut' | 'grown' | 'changed';
  readonly at: number;
  readonly with: Uint8Array;
}

/** Cut, grown, or with other bytes in it. */
export const corruption: fc.Arbitrary<Corruption> = fc.record({
  how: fc.constantFrom('cut' as const, 'grown' as const, 'changed' as const),
  at: fc.nat(),
  with: fc.oneof(fc.uint8Array({ minLength: 1, maxLength: 8 }), bytes),
});

export function corrupted(message: Buffer, { how, at, with: other }: Corruption): Buffer {
  const from = message.length === 0 ? 0 : at % message.length;
  if (how === 'cut') return message.subarray(0, from);
  const rest = how === 'grown' ? from : Math.min(message.length, from + other.length);
  return Buffer.concat([message.subarray(0, from), other, message.subarray(rest)]);
}

export function hex(some: Uint8Array): string {
  return Buffer.from(some).toString('hex');
}

interface Frames {
  readonly head: Head;
  readonly frame: (message: Buffer) => Buffer;
  /** Runs what reads; an error that is not the wire's is a fault of ours, and thrown. */
  readonly read: (parse: () => unknown) => unknown;
  /** A head with the longest message that there can be, and how long that is. */
  readonly longest: { readonly head: Buffer; readonly bytes: number };
  /** Heads that there can't be. */
  readonly impossible: Readonly<Record<string, Buffer>>;
}

export function testFrames({ head, frame, read, longest, impossible }: Frames): void {
  describe('frames', () => {
    test('are found however they are cut into pieces', () => {
      const cuts = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 });
      fc.assert(
        fc.property(fc.array(bytes, { maxLength: 6 }), cuts, (messages, sizes) => {
          const stream = Buffer.concat(messages.map((message) => frame(Buffer.from(message))));
          const reader = new FrameReader(head);
          const found: Buffer[] = [];
          for (let at = 0, piece = 0; at < stream.length; piece += 1) {
            const size = sizes[piece % sizes.length]!;
            found.push(...reader.push(stream.subarray(at, at + size)));
            at += size;
          }
          expect(found.map(hex)).toEqual(messages.map(hex));
          expect(reader.partial).toBe(false);
        }),
      );
    });

    test('of random bytes are refused or waited for; never is more kept than has come', () => {
      fc.assert(
        fc.property(fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 20 }), (pieces) => {
          const reader = new FrameReader(head);
          read(() => pieces.map((piece) => reader.push(Buffer.from(piece))));
        }),
        { numRuns: 2_000 },
      );
    });

    test.each(Object.entries(impossible))('%s are refused', (_, wrong) => {
      expect(read(() => new FrameReader(head).push(wrong))).toBeUndefined();
    });

    test('that come byte by byte take no more room than twice their length', () => {
      const message = Buffer.alloc(100_000, 7);
      const reader = new FrameReader(head);
      const before = process.memoryUsage();
      const found: Buffer[] = [];
      for (const byte of frame(message)) found.push(...reader.push(Buffer.of(byte)));
      expect(found.map((each) => each.equals(message))).toEqual([true]);
      const after = process.memoryUsage();
      // A list of as many pieces would be more.
      expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(12_000_000);
    });

    test('that are as long as any answer may be are waited for, and nothing is allocated until they come', () => {
      const before = process.memoryUsage().arrayBuffers;
      expect(new FrameReader(head).push(longest.head)).toEqual([]);
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(longest.bytes / 2);
    });
  });
}
