import { describe, expect, test } from 'vitest';
import { type Duration, parseDuration, show } from '../../../src/core/duration.js';
import { ConfigError } from '../../../src/core/errors.js';

describe('a duration', () => {
  test.each([
    [0, 0],
    [250, 250],
    [0.5, 0.5],
    ['0ms', 0],
    ['250ms', 250],
    ['10s', 10_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
    ['1.5s', 1_500],
    ['0.25h', 900_000],
    ['596h', 2_145_600_000],
    ['720h', 2_592_000_000],
    ['1d', 86_400_000],
    ['0.5d', 43_200_000],
    ['366d', 31_622_400_000],
    [2 ** 31, 2 ** 31],
  ])('%j is %d ms', (value, ms) => {
    expect(parseDuration(value, 'timeout')).toBe(ms);
  });

  test.each([
    ['soon'],
    [''],
    ['10'],
    ['10 s'],
    [' 10s'],
    ['10s\n'],
    ['-1s'],
    ['.5s'],
    ['1e3ms'],
    ['10S'],
    ['367d'],
    ['1w'],
    [-1],
    [366 * 86_400_000 + 1],
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    [10n],
    [true],
    [null],
    [undefined],
    [{}],
    [[5]],
    [new Date(0)],
    [Symbol('s')],
  ])('%o is refused by a message that names the option and shows what is allowed', (value) => {
    let thrown: unknown;
    try {
      parseDuration(value, 'maxHold');
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ConfigError);
    expect((thrown as Error).message).toMatch(/^maxHold must be a duration .*'250ms', '10s', '5m', '1h', '7d'; got /s);
  });
});

test('types take what run time takes, and nothing with a space in it', () => {
  const right: Duration[] = ['0ms', '250ms', '10s', '5m', '1h', '7d', '1.5s', '0.25h', '1.05s', 2_000];
  for (const value of right) expect(() => parseDuration(value, 'timeout')).not.toThrow();
  const wrong: Duration[] = [
    // @ts-expect-error: a space is no part of a number
    '2 s',
    // @ts-expect-error: nor of a unit
    '2s ',
    // @ts-expect-error: nor is an exponent
    '1e3ms',
    // @ts-expect-error: there is no such unit
    '1w',
  ];
  for (const value of wrong) expect(() => parseDuration(value, 'timeout')).toThrow(ConfigError);
});

describe('a wrong value in a message', () => {
  test('is short and quoted', () => {
    expect(show('soon')).toBe('"soon"');
    expect(show('x'.repeat(100))).toBe(`"${'x'.repeat(40)}…"`);
  });

  test('never shows what is inside an object', () => {
    expect(show({ password: 'canary' })).toBe('an object');
    expect(show(['canary'])).toBe('an array');
    expect(show(() => 'canary')).toBe('a function');
  });

  test('can neither break a line nor drive a terminal', () => {
    expect(show('a\nb\u007f\u009b31m\u2028')).toBe('"a\\nb\\u007f\\u009b31m\\u2028"');
  });

  test.each([
    [undefined, 'undefined'],
    [null, 'null'],
    [1.5, '1.5'],
    [7n, '7'],
    [false, 'false'],
    [Symbol('s'), 'Symbol(s)'],
  ])('%o is shown as %s', (value, text) => {
    expect(show(value)).toBe(text);
  });
});
