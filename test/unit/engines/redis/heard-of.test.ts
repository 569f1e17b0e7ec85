/** Anybody may publish that a claim is gone: it costs a look too many, and no memory. */
import { expect, test } from 'vitest';
import { HeardOf } from '../../../../src/engines/redis/redlock/heard-of.js';

test('a claim that enough nodes have named is gone', () => {
  const heard = new HeardOf(2);
  expect(heard.again('a-1')).toBe(false);
  expect(heard.again('b-1')).toBe(false);
  expect(heard.again('a-1')).toBe(true);
  expect(heard.again('b-1')).toBe(false);
});

test('what is no claim is not counted', () => {
  const heard = new HeardOf(1);
  for (const text of ['', ' ', 'x'.repeat(1_000), 'a b', '\n', '{}']) expect(heard.again(text)).toBe(false);
  expect(heard.size).toBe(0);
});

test('a flood of made-up claims is forgotten, and who is named next is heard', () => {
  const heard = new HeardOf(2);
  for (let number = 0; number < 50_000; number += 1) heard.again(`made-up-${number}`);
  expect(heard.size).toBeLessThanOrEqual(1_000);
  heard.again('a-1');
  expect(heard.again('a-1')).toBe(true);
});
