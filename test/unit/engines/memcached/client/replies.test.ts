import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Reply, ReplyParser } from '../../../../../src/engines/memcached/client/replies.js';

const STREAM = 'HD c17\r\nVA 4 c18\r\n\r\n\r\n\r\nEN\r\nNS\r\nVA 0\r\n\r\nCLIENT_ERROR bad data chunk\r\nMN\r\n';
const REPLIES: readonly Reply[] = [
  { code: 'HD', flags: ['c17'], value: undefined },
  { code: 'VA', flags: ['c18'], value: '\r\n\r\n' },
  { code: 'EN', flags: [], value: undefined },
  { code: 'NS', flags: [], value: undefined },
  { code: 'VA', flags: [], value: '' },
  { code: 'CLIENT_ERROR', flags: ['bad', 'data', 'chunk'], value: undefined },
  { code: 'MN', flags: [], value: undefined },
];

const reply = fc.oneof(
  fc
    .constantFrom('HD', 'HD c17', 'EN', 'NS', 'EX', 'NF', 'MN', 'SERVER_ERROR out of memory')
    .map((line) => `${line}\r\n`),
  fc
    .uint8Array({ maxLength: 100 })
    .map((value) => `VA ${value.length} c1\r\n${Buffer.from(value).toString('latin1')}\r\n`),
);

/** What the network and a server gone mad do to a stream. */
const damage = fc.oneof(
  fc.record({ do: fc.constant('cut' as const), at: fc.nat() }),
  fc.record({ do: fc.constant('grow' as const), at: fc.nat(), bytes: fc.uint8Array({ minLength: 1, maxLength: 40 }) }),
  fc.record({
    do: fc.constant('corrupt' as const),
    at: fc.nat(),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 1 }),
  }),
  fc.record({ do: fc.constant('size' as const), at: fc.nat(), bytes: fc.constant(Buffer.from('VA 99999999999999 ')) }),
);

/** All replies of a stream that arrives in these pieces, and what ended it. */
function read(stream: Buffer, sizes: readonly number[]): { replies: Reply[]; error: unknown } {
  const parser = new ReplyParser();
  const replies: Reply[] = [];
  let at = 0;
  try {
    for (let piece = 0; at < stream.length; piece += 1) {
      const size = sizes[piece % sizes.length] ?? stream.length;
      replies.push(...parser.push(stream.subarray(at, at + size)));
      at += size;
    }
  } catch (error) {
    return { replies, error };
  }
  return { replies, error: undefined };
}

describe('what memcached answers', () => {
  test('is the same wherever the stream is split', () => {
    const stream = Buffer.from(STREAM);
    for (let at = 1; at < stream.length; at += 1)
      expect(read(stream, [at, stream.length])).toEqual({ replies: REPLIES, error: undefined });
    expect(read(stream, [1])).toEqual({ replies: REPLIES, error: undefined });
  });

  test('is the same in pieces of any sizes', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 10 });
    fc.assert(
      fc.property(fc.array(reply), sizes, (replies, pieces) => {
        const stream = Buffer.from(replies.join(''), 'latin1');
        expect(read(stream, pieces)).toEqual(read(stream, []));
        expect(read(stream, pieces).replies).toHaveLength(replies.length);
      }),
    );
  });

  test('may be cut, grown or corrupted: what came before counts, and the rest is an error or awaited, never a hang', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(fc.array(reply, { minLength: 1 }), damage, sizes, (replies, { at, ...harm }, pieces) => {
        const whole = Buffer.from(replies.join(''), 'latin1');
        const where = at % whole.length;
        const [before, after] = [whole.subarray(0, where), whole.subarray(where)];
        const stream =
          harm.do === 'cut'
            ? before
            : Buffer.concat([before, harm.bytes, harm.do === 'corrupt' ? after.subarray(1) : after]);
        const { error } = read(stream, pieces);
        if (error !== undefined) expect(error).toBeInstanceOf(Error);
        const untouched = read(before, []).replies;
        // An error in a piece takes along what is complete in it; in single bytes there is nothing else.
        expect(read(stream, [1]).replies.slice(0, untouched.length)).toEqual(untouched);
      }),
      { numRuns: 500 },
    );
  });

  test('may be anything at all', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ minLength: 1 })), (chunks) => {
        const parser = new ReplyParser();
        try {
          for (const chunk of chunks)
            for (const { code } of parser.push(Buffer.from(chunk))) expect(code).toBeTypeOf('string');
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
        }
      }),
    );
  });
});

describe('a size', () => {
  test.each(['-1', '', 'x', '1e6', '1048577', '99999999999999999999', '0x10', '+1', ' 5'])(
    'of %j is refused',
    (size) => {
      expect(() => new ReplyParser().push(Buffer.from(`VA ${size}\r\n`))).toThrow('no size');
    },
  );

  test('that is not the value’s is noticed', () => {
    expect(() => new ReplyParser().push(Buffer.from('VA 3\r\nfour\r\n'))).toThrow('another size');
  });

  test('is not allocated before its bytes are there', () => {
    const parsers = Array.from({ length: 1_000 }, () => new ReplyParser());
    const before = process.memoryUsage().arrayBuffers;
    for (const parser of parsers) expect(parser.push(Buffer.from('VA 1048576\r\nx'))).toEqual([]);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50_000_000);
  });

  test('that is large costs no more than its bytes, however small the pieces are', () => {
    const value = 'v'.repeat(1_000_000);
    const stream = Buffer.from(`VA ${value.length}\r\n${value}\r\n`);
    // Put together with every piece it would copy a hundred gigabytes.
    expect(read(stream, [5]).replies).toEqual([{ code: 'VA', flags: [], value }]);
  });
});

test('a line without an end is an error before it takes up memory', () => {
  const parser = new ReplyParser();
  expect(parser.push(Buffer.alloc(2_000, 'x'))).toEqual([]);
  expect(() => parser.push(Buffer.alloc(100, 'x'))).toThrow('without an end');
  expect(() => new ReplyParser().push(Buffer.from(`${'x'.repeat(3_000)}\r\n`))).toThrow('too long');
});
