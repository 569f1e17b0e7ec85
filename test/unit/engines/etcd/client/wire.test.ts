/** What comes from a network may be anything: parsers end, say no, and never believe a length. */
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { frame, headOf, MOST } from '../../../../../src/engines/etcd/client/frames.js';
import {
  LeaseKeepAliveResponse,
  RangeRequest,
  RangeResponse,
  TxnResponse,
  WatchResponse,
} from '../../../../../src/engines/etcd/client/messages.js';
import { message, type Message, one, TooMuchError } from '../../../../../src/engines/etcd/client/wire.js';
import { WireError } from '../../../../../src/kit/frame-reader.js';
import { corrupted, corruption, hex, testFrames } from '../../frame-cases.js';

const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const bytes = fc.uint8Array({ maxLength: 300 });
const header = fc.record({ clusterId: int64, memberId: int64, revision: int64, raftTerm: int64 });
const kv = fc.record({
  key: bytes,
  createRevision: int64,
  modRevision: int64,
  version: int64,
  value: bytes,
  lease: int64,
});
const range = fc.record({ header, kvs: fc.array(kv, { maxLength: 5 }), more: fc.boolean(), count: int64 });

const MESSAGES = [RangeResponse, TxnResponse, WatchResponse, LeaseKeepAliveResponse];

/** Undefined: it was refused, as it should be; anything but a WireError is a fault of ours. */
function read<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    return undefined;
  }
}

describe('messages', () => {
  test('come back as they went', () => {
    fc.assert(
      fc.property(range, (message) => {
        const { kvs, ...rest } = RangeResponse.decode(RangeResponse.encode(message));
        expect(rest).toEqual({ header: message.header, more: message.more, count: message.count });
        expect(kvs.map(plain)).toEqual(message.kvs.map(plain));
      }),
    );
  });

  test('with fields that we do not know are read without them', () => {
    const newer = Buffer.concat([
      RangeRequest.encode({ key: Buffer.from('a') }),
      // Fields 200 to 203: a number, text, 64 and 32 bits.
      Buffer.from([0xc0, 0x0c, 0x96, 0x01, 0xca, 0x0c, 0x02, 0x68, 0x69]),
      Buffer.from([0xd1, 0x0c, 1, 2, 3, 4, 5, 6, 7, 8, 0xdd, 0x0c, 1, 2, 3, 4]),
    ]);
    expect(Buffer.from(RangeRequest.decode(newer).key).toString()).toBe('a');
  });

  test('that are corrupted are refused or read as something else, and nothing worse', () => {
    fc.assert(
      fc.property(range, fc.array(corruption, { minLength: 1, maxLength: 4 }), (message, faults) => {
        const broken = faults.reduce(corrupted, RangeResponse.encode(message));
        for (const kind of MESSAGES) read(() => kind.decode(broken));
      }),
      { numRuns: 400 },
    );
  });

  test('of random bytes are refused or read as something else, and nothing worse', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2_000 }), (noise) => {
        for (const kind of MESSAGES) read(() => kind.decode(noise));
      }),
      { numRuns: 2_000 },
    );
  });

  test('nested without end are refused before they exhaust the stack', () => {
    expect(Matryoshka.decode(nested(3))).toEqual({ inner: { inner: { inner: { inner: undefined } } } });
    expect(() => Matryoshka.decode(nested(10_000))).toThrow(WireError);
  });
});

/** Empty entries of a list. */
function parts(count: number): Buffer {
  return Buffer.alloc(2 * count, Buffer.of(0x12, 0));
}

test('a message of many small parts is refused before they fill the memory', () => {
  expect(RangeResponse.decode(parts(1_000), 1_000).kvs).toHaveLength(1_000);
  expect(() => RangeResponse.decode(parts(1_001), 1_000)).toThrow(TooMuchError);
  // Whatever they are: fields that we do not know, or that count once.
  expect(() => RangeResponse.decode(Buffer.alloc(2_000_002, Buffer.of(0x7a, 0)))).toThrow(TooMuchError);
  // Together, not each by itself: as many in each of two as there may be in both.
  const one = TxnResponse.encode({ responses: [{ range: {} }, { range: {} }] });
  expect(() => TxnResponse.decode(one, 3)).toThrow(TooMuchError);
  expect(TxnResponse.decode(one, 4).responses).toHaveLength(2);
});

/** One that may contain itself. None of etcd's that we read does today. */
const Matryoshka: Message<unknown> = message({
  inner: one(1, {
    wireType: 2,
    absent: undefined,
    write: () => {},
    read: (reader, depth) => Matryoshka.read(reader, depth),
  }),
});

testFrames({
  head: headOf(MOST.keys.bytes),
  frame,
  read,
  longest: { head: bytesOfHead(MOST.keys.bytes), bytes: MOST.keys.bytes },
  impossible: {
    'that claim to be longer than any answer': bytesOfHead(MOST.keys.bytes + 1),
    'that are compressed, which we did not ask for,': bytesOfHead(0, 1),
  },
});

function bytesOfHead(length: number, compressed = 0): Buffer {
  const head = Buffer.alloc(5, compressed);
  head.writeUInt32BE(length, 1);
  return head;
}

function plain({ key, value, ...rest }: { readonly key: Uint8Array; readonly value: Uint8Array }): object {
  return { key: hex(key), value: hex(value), ...rest };
}

function nested(levels: number): Buffer {
  let content = Buffer.alloc(0);
  for (let level = 0; level < levels; level += 1)
    content = Buffer.concat([Buffer.from([0x0a]), varint(content.length), content]);
  return content;
}

function varint(value: number): Buffer {
  const groups: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) groups.push((rest & 0x7f) | 0x80);
  return Buffer.from([...groups, rest]);
}
