/** Whoever may publish writes messages: what makes no sense is none, and nothing that is thrown because of one goes further. */
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseMessage, quietly } from '../../../src/kit/message.js';
import { anyText } from '../any-text.js';

test('a grant has a claim, a token and a nonce', () => {
  expect(parseMessage('granted a-1 0000000000000007 n')).toEqual({ what: 'granted', id: 'a-1', token: 7n, nonce: 'n' });
});

test('a grant without a nonce has an empty one', () => {
  expect(parseMessage('granted a-1 7')).toEqual({ what: 'granted', id: 'a-1', token: 7n, nonce: '' });
});

test('of an eviction only the claim counts', () => {
  expect(parseMessage('evicted a-1')).toEqual({ what: 'evicted', id: 'a-1' });
  expect(parseMessage('evicted a-1 a reason\nof two lines')).toEqual({ what: 'evicted', id: 'a-1' });
});

test.each([
  ...[
    '',
    ' ',
    'granted',
    'granted a-1',
    'granted a-1 ',
    'granted  a-1 7 n',
    'granted a-1 7 n m',
    'granted a-1 7 n ',
    'x a-1 7 n',
  ],
  ...[
    'granted a-1 -7 n',
    'granted a-1 0x7 n',
    'granted a-1 7n n',
    'granted a-1 1e3 n',
    'granted a-1 7.5 n',
    'GRANTED a-1 7 n',
  ],
  ...[
    `granted a-1 ${'9'.repeat(20)} n`,
    `granted ${'a'.repeat(201)} 7 n`,
    'granted a-1 7 n\n',
    'evicted',
    'evicted ',
    'revoked a-1',
  ],
])('%j is no message', (text) => {
  expect(parseMessage(text)).toBeUndefined();
});

test('any text is a message or none', () => {
  const words = fc.oneof(anyText(), fc.constantFrom('granted', 'evicted', 'a-1', '7', '0000000000000007', 'n', ''));
  const texts = fc.oneof(
    anyText(),
    fc.array(words, { maxLength: 6 }).map((list) => list.join(' ')),
  );
  fc.assert(
    fc.property(texts, (text) => {
      const message = parseMessage(text);
      if (!message) return;
      expect(text.startsWith(`${message.what} ${message.id}`)).toBe(true);
      if (message.what === 'granted') expect(message.token >= 0n && message.token < 10n ** 19n).toBe(true);
    }),
    { numRuns: 5_000 },
  );
});

test('what is thrown by who hears a message goes no further', () => {
  quietly(() => {
    throw new Error('a mistake of ours');
  });
});
