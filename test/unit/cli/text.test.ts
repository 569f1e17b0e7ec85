import { describe, expect, test } from 'vitest';
import { age, json, maskCredentials, printable, printableLines, table } from '../../../src/cli/text.js';

/** C0, DEL, C1 (CSI and OSC of one byte), separators of lines, and marks that turn the reading direction. */
const HOSTILE = '\u001b]0;pwned\u0007\u007f\u009b2J\u009d\r\n\u2028\u2029\u061c\u200e\u200f\u202a\u202e\u2066\u2069';
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;

describe('what is printed is printable', () => {
  test('words of others', () => expect(printable(`a${HOSTILE}b`)).not.toMatch(UNPRINTABLE));

  test('a statement to run, which keeps its lines', () => {
    const lines = printableLines(`not allowed\nCREATE PROCEDURE p()\nBEGIN${HOSTILE.replace('\n', '')}\nEND`).split(
      '\n',
    );
    expect(lines.map((line) => UNPRINTABLE.test(line))).toEqual([false, false, false, false]);
    expect(lines.slice(0, 2)).toEqual(['not allowed', 'CREATE PROCEDURE p()']);
  });

  test('every cell of a table, whatever column it is in', () => {
    const text = table([['CLAIM', 'KIND'], ...Array.from({ length: 2 }, () => [`id${HOSTILE}`, `1/${HOSTILE}`])]);
    expect(text.split('\n').map((line) => UNPRINTABLE.test(line))).toEqual([false, false, false, false]);
  });

  test('JSON, which still says the same', () => {
    const value = { label: HOSTILE, [HOSTILE]: ['日本', '"\\'] };
    const line = json(value);
    expect(line.endsWith('\n')).toBe(true);
    expect(line.slice(0, -1)).not.toMatch(UNPRINTABLE);
    expect(JSON.parse(line)).toEqual(value);
  });

  test('an age that a store made up', () => expect([age(Number.NaN), age(-5)]).toEqual(['-', '0ms']));
});

test('a table has as many rows as there are claims', () => {
  const rows = Array.from({ length: 130_000 }, (_, at) => [`lock:${at}`, 'lock', 'held', 'app@host:1', '1s']);
  const lines = table([['NAME', 'KIND', 'STATE', 'LABEL', 'AGE'], ...rows]).split('\n');
  expect(lines.length).toBe(130_002);
  expect([lines[1], lines[130_000]]).toEqual([
    'lock:0       lock  held   app@host:1  1s',
    'lock:129999  lock  held   app@host:1  1s',
  ]);
});

test.each([
  ['redis://bob:Ca/na?ry7@x@db is down', 'redis://***@db is down'],
  ['a://u:p@h,b://u:p@h2 c://u:p@h3', 'a://***@h2 c://***@h3'],
  ['file:///a@b http://x /@ ://@', 'file:///a@b http://x /@ ://***@'],
  ['mail a@b ://c', 'mail a@b ://c'],
])('credentials are masked: %s', (text, masked) => expect(maskCredentials(text)).toBe(masked));
