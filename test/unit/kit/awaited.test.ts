/** Who waits for a grant believes its engine's answers, and of messages only what carries the claim's own nonce. */
import { beforeEach, describe, expect, test } from 'vitest';
import { Awaited } from '../../../src/kit/awaited.js';

let told: string[];
let awaited: Awaited;

beforeEach(() => {
  told = [];
  let nonces = 0;
  awaited = new Awaited(
    {
      granted: (id, token) => void told.push(`granted ${id} ${token}`),
      lost: (id) => void told.push(`lost ${id}`),
      ended: () => void told.push('ended'),
      hinted: () => void told.push('hinted'),
    },
    () => `nonce${(nonces += 1)}`,
  );
});

describe('a message', () => {
  test('with the nonce of its claim grants it, once', () => {
    const nonce = awaited.add('a');
    awaited.heard(`granted a 7 ${nonce}`);
    awaited.heard(`granted a 8 ${nonce}`);
    expect(told).toEqual(['granted a 7']);
    expect(awaited.has('a')).toBe(false);
  });

  test.each(['granted a 7 nonce2', 'granted a 7 nonce', 'granted a 7'])(
    '%s, without the nonce of its claim, is a reason to look',
    (text) => {
      awaited.add('a');
      awaited.add('b');
      awaited.heard(text);
      expect(told).toEqual(['hinted']);
      expect([...awaited]).toEqual(['a', 'b']);
    },
  );

  test('about a claim that does not wait is passed over', () => {
    const nonce = awaited.add('a');
    awaited.delete('a');
    awaited.heard(`granted a 7 ${nonce}`);
    awaited.heard('granted nobody 7 x');
    expect(told).toEqual([]);
  });

  test('grants a claim that left and entered again before its first enter was answered', () => {
    const first = awaited.add('a');
    awaited.delete('a');
    const second = awaited.add('a');
    awaited.answered('a', first);
    awaited.heard(`granted a 7 ${second}`);
    expect(told).toEqual(['granted a 7']);
  });

  test('that a claim is to go is a reason to look, and no more', () => {
    awaited.add('a');
    awaited.heard('evicted a');
    awaited.heard('evicted one-that-holds');
    expect(told).toEqual(['hinted', 'hinted']);
  });

  test('that makes no sense is passed over', () => {
    awaited.add('a');
    for (const text of ['', 'granted', 'granted a', 'granted a x nonce1', 'x']) awaited.heard(text);
    expect(told).toEqual([]);
  });
});

test('a claim that enters again keeps its nonce', () => {
  expect(awaited.add('a')).toBe(awaited.add('a'));
  expect(awaited.add('b')).not.toBe(awaited.add('a'));
});

test('where messages grant nothing, none is believed', () => {
  const silent = new Awaited({
    granted: () => void told.push('granted'),
    lost: () => {},
    ended: () => {},
    hinted: () => void told.push('hinted'),
  });
  silent.add('a');
  for (const text of ['granted a 7', 'granted a 7 ', 'granted a 7 x']) silent.heard(text);
  expect(told).not.toContain('granted');
});
