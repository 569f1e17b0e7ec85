/** No name of a lock becomes a key of another lock, of another strategy, of a fence, or of what we keep beside a lock. */
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { registerKey, shardPrefix } from '../../../../src/engines/redis/queue/keys.js';
import { ballotKey } from '../../../../src/engines/redis/redlock/keys.js';
import { keysUnder, tokenKey } from '../../../../src/engines/redis/slots/keys.js';
import { fenceKey } from '../../../../src/fence/redis.js';
import { anyText } from '../../any-text.js';

const keyOf = keysUnder('holdfast');

/** Names of all kinds, and many that are made of what our own keys are made of. */
const part = fc.constantFrom(
  ...[
    '{0}',
    '{63}',
    '%7B0%7D',
    '%257B0%257D',
    '{0%7D',
    '%7b0%7d',
    ':',
    ':state',
    ':sessions',
    ':order',
    ':register:',
    'a',
    '%',
    '{',
    '}',
  ],
  ...['holdfast', 'holdfast:', 'holdfast_token:', 'holdfast_fence:', 'holdfast_ballot:', 'fence:', '{a}'],
);
const name = fc.oneof(
  anyText({ minLength: 1, maxLength: 20 }),
  anyText({ minLength: 1, maxLength: 5 }).map((text) => `fence:{${text}}`),
  fc.array(part, { minLength: 1, maxLength: 6 }).map((parts) => parts.join('')),
);
const realm = fc.oneof(
  fc.constant(''),
  fc.nat(63).map((number) => `${number}`),
);

/** Every key of ours that is no lock of `plain`, `hash` or redlock. */
function others(one: string, inRealm: string): string[] {
  const prefix = shardPrefix('holdfast', inRealm);
  return [
    ...['sessions', 'state', 'order'].map((key) => prefix + key),
    ...[false, true].map((cluster) => registerKey('holdfast', one, cluster)),
    tokenKey(keyOf(one)) ?? 'none',
    ballotKey(keyOf(one)),
    fenceKey(one),
  ];
}

test('two names have two keys', () => {
  fc.assert(
    fc.property(name, name, (one, other) => {
      expect(keyOf(one) === keyOf(other)).toBe(one === other);
    }),
    { numRuns: 5_000 },
  );
  for (const one of ['{0}:state', 'x:{12}:register:y', '%7B0%7D:state', '{0%7D:state']) {
    const seen = [one];
    for (let depth = 0; depth < 4; depth += 1) seen.push(keyOf(seen.at(-1)!).slice('holdfast:'.length));
    expect(new Set(seen.map(keyOf)).size, one).toBe(new Set(seen).size);
  }
});

test('no name is a key of another kind', () => {
  fc.assert(
    fc.property(name, name, realm, (one, other, inRealm) => {
      expect(others(other, inRealm)).not.toContain(keyOf(one));
    }),
    { numRuns: 5_000 },
  );
  for (const inRealm of ['', '0', '63'])
    for (const key of others('x', inRealm)) {
      if (!key.startsWith('holdfast:')) continue;
      expect(keyOf(key.slice('holdfast:'.length)), key).not.toBe(key);
    }
});

test('no namespace reaches what is ours', () => {
  for (const ours of ['holdfast_token', 'holdfast_fence', 'holdfast_ballot', 'holdfast_freed'])
    expect(keysUnder(ours)('{x}')).not.toMatch(new RegExp(`^${ours}:`));
  expect(keysUnder('holdfast_x')('a')).not.toBe(keysUnder('holdfast%5Fx')('a'));
});

test('names that other programs use, too, are themselves', () => {
  for (const one of [
    'order:42',
    '{user}:1',
    'a{b}c',
    '{0}',
    '{0}:stated',
    '{0}:states',
    '100%',
    'a%7B',
    'fence:{account:1}',
  ])
    expect(keyOf(one)).toBe(`holdfast:${one}`);
});
