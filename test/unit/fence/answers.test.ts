import { expect, test } from 'vitest';
import { tokensOf } from '../../../src/fence/answers.js';
import { EngineError } from '../../../src/index.js';

test('tokens are read from whatever a library makes of a column of 64 bits', () => {
  for (const read of ['9223372036854775807', 9_223_372_036_854_775_807n])
    expect(tokensOf({ max_read: read, max_write: 5 })).toEqual({ read: 9_223_372_036_854_775_807n, wrote: 5n });
});

test.each(['abc', '', null, '1e3', '9'.repeat(1_000_000), {}, '0x10'])(
  'a row that somebody else wrote is an error of ours: %.20s',
  (max_read) => expect(() => tokensOf({ max_read, max_write: 5 })).toThrow(EngineError),
);
