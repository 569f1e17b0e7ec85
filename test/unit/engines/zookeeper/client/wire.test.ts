/** What comes from a network may be anything: parsers end, say no, and never believe a length. */
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { frame, HEAD, LONGEST_FRAME } from '../../../../../src/engines/zookeeper/client/frames.js';
import { WireError } from '../../../../../src/kit/frame-reader.js';
import { Reader, Writer } from '../../../../../src/engines/zookeeper/client/jute.js';
import {
  OP,
  readEvent,
  readHeader,
  readStat,
  readSteps,
  readWelcome,
  type Stat,
} from '../../../../../src/engines/zookeeper/client/messages.js';
import { ZooKeeperError } from '../../../../../src/engines/zookeeper/client/status.js';
import { corrupted, corruption, testFrames } from '../../frame-cases.js';

const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const bytes = fc.uint8Array({ maxLength: 300 });
const stat = fc.record({
  ...{ czxid: int64, mzxid: int64, ctime: int64, mtime: int64, version: int32, cversion: int32, aversion: int32 },
  ...{ ephemeralOwner: int64, dataLength: int32, numChildren: int32, pzxid: int64 },
});
const listing = fc.record({ names: fc.array(fc.string({ unit: 'grapheme' }), { maxLength: 6 }), data: bytes, stat });

/** Everything that is read from a server. */
const PARSERS: readonly ((reader: Reader) => unknown)[] = [
  readHeader,
  readEvent,
  readStat,
  readSteps,
  (reader) => [reader.list((each) => each.text()), readStat(reader)],
  (reader) => [reader.bytes(), readStat(reader)],
  (reader) => [reader.text(), readStat(reader)],
];

function writeStat(writer: Writer, value: Stat): Writer {
  const { czxid, mzxid, ctime, mtime, version, cversion, aversion } = value;
  writer.long(czxid).long(mzxid).long(ctime).long(mtime).int(version).int(cversion).int(aversion);
  return writer.long(value.ephemeralOwner).int(value.dataLength).int(value.numChildren).long(value.pzxid);
}

function written({ names, data, stat: value }: { names: string[]; data: Uint8Array; stat: Stat }): Buffer {
  const writer = new Writer().list(names, (each, name) => each.text(name)).bytes(data);
  return writeStat(writer, value).finish();
}

/** Undefined: it was refused, as it should be; anything else that is thrown is a fault of ours. */
function read<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof WireError) && !(error instanceof ZooKeeperError)) throw error;
    return undefined;
  }
}

describe('messages', () => {
  test('come back as they went, numbers of 64 bits too', () => {
    fc.assert(
      fc.property(listing, (message) => {
        const reader = new Reader(written(message));
        expect(reader.list((each) => each.text())).toEqual(message.names);
        expect(reader.bytes().toString('hex')).toBe(Buffer.from(message.data).toString('hex'));
        expect(readStat(reader)).toEqual(message.stat);
        expect(reader.atEnd).toBe(true);
      }),
    );
  });

  test('that are corrupted are refused or read as something else, and nothing worse', () => {
    fc.assert(
      fc.property(listing, fc.array(corruption, { minLength: 1, maxLength: 4 }), (message, faults) => {
        const broken = faults.reduce(corrupted, written(message));
        for (const parse of PARSERS) read(() => parse(new Reader(broken)));
        read(() => readWelcome(broken));
      }),
      { numRuns: 400 },
    );
  });

  test('of random bytes are refused or read as something else, and nothing worse', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2_000 }), (noise) => {
        for (const parse of PARSERS) read(() => parse(new Reader(Buffer.from(noise))));
        read(() => readWelcome(Buffer.from(noise)));
      }),
      { numRuns: 2_000 },
    );
  });

  test('whose counts and lengths are longer than the message are refused before anything is allocated', () => {
    const huge = new Writer().int(0x7fff_ffff).finish();
    const before = process.memoryUsage().arrayBuffers;
    expect(() => new Reader(huge).list((each) => each.text())).toThrow(WireError);
    expect(() => new Reader(huge).bytes()).toThrow(WireError);
    expect(() => new Reader(new Writer().int(-2).finish()).bytes()).toThrow(WireError);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(LONGEST_FRAME / 2);
  });

  test('of several steps say which step failed, whatever the others say', () => {
    const failed = new Writer();
    for (const status of [0, -101, -2]) failed.int(-1).bool(false).int(status).int(status);
    failed.int(-1).bool(true).int(-1);
    expect(() => readSteps(new Reader(failed.finish()))).toThrow('there is no such node');
    const done = new Writer().int(OP.delete).bool(false).int(0).int(OP.create).bool(false).int(0).text('/a');
    expect(readSteps(new Reader(done.int(-1).bool(true).int(-1).finish()))).toBeUndefined();
  });
});

testFrames({
  head: HEAD,
  frame,
  read,
  longest: { head: headOf(LONGEST_FRAME), bytes: LONGEST_FRAME },
  impossible: {
    'that claim to be longer than any answer': headOf(LONGEST_FRAME + 1),
    'that claim to be shorter than nothing': headOf(-1),
  },
});

function headOf(length: number): Buffer {
  const head = Buffer.alloc(4);
  head.writeInt32BE(length, 0);
  return head;
}

/** Of names that are empty. */
function list(count: number): Buffer {
  return Buffer.concat([new Writer().int(count).finish(), Buffer.alloc(4 * count)]);
}

test('a list that is longer than any line is refused before it fills the memory', () => {
  expect(new Reader(list(250_000)).list((each) => each.text())).toHaveLength(250_000);
  expect(() => new Reader(list(250_001)).list((each) => each.text())).toThrow(WireError);
});
