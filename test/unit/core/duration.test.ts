import { describe, expect, test } from 'vitest';
import { parseDuration, show } from '../../../src/core/duration.js';
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
    [2 ** 31 - 1, 2 ** 31 - 1],
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
    ['1d'],
    ['597h'],
    [-1],
    [2 ** 31],
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
    expect((thrown as Error).message).toMatch(/^maxHold must be a duration .*'250ms', '10s', '5m', '1h'; got /s);
  });
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
