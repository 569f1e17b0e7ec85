import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { lockKey, realmsOf, tokenKey } from '../../../../src/engines/memcached/keys.js';
import { anyText } from '../../any-text.js';

/** More than the core lets through: control characters, too. */
const name = fc.oneof(
  anyText({ minLength: 1, maxLength: 170 }),
  fc.string({
    unit: fc.constantFrom('a', ':', '%', '~', '.', ' ', '\r', '\n', 'é', '2', '5'),
    minLength: 1,
    maxLength: 512,
  }),
  fc.constantFrom(
    ':token',
    '%token',
    '::token',
    'a\r\nflush_all\r\n',
    'a'.repeat(120),
    'a'.repeat(121),
    'a'.repeat(512),
  ),
);

/** Namespace and name. */
type Place = readonly [string, string];

describe('a key', () => {
  test('never ends a command or a word, and is never too long, whatever the name', () => {
    fc.assert(
      fc.property(name, name, (namespace, lock) => {
        for (const key of [lockKey(namespace, lock), tokenKey(namespace)]) {
          expect(key).toMatch(/^[A-Za-z0-9._:%~-]+$/);
          expect(key.length).toBeLessThanOrEqual(250);
        }
      }),
      { numRuns: 200 },
    );
  });

  test('belongs to one name of one namespace', () => {
    const place = fc.tuple(name, name);
    fc.assert(
      fc.property(fc.uniqueArray(place, { minLength: 2, selector: (pair) => JSON.stringify(pair) }), (places) => {
        const keys = new Set(places.map(([namespace, lock]) => lockKey(namespace, lock)));
        expect(keys.size).toBe(places.length);
        for (const [namespace] of places) expect(keys).not.toContain(tokenKey(namespace));
      }),
      { numRuns: 200 },
    );
  });

  test.each<[one: Place, other: Place]>([
    [
      ['a:b', 'c'],
      ['a', 'b:c'],
    ],
    [
      ['a', ':token'],
      ['a:', 'token'],
    ],
    [
      ['n', 'é'],
      ['n', '%C3%A9'],
    ],
    [
      ['n', 'a'.repeat(511)],
      ['n', 'a'.repeat(512)],
    ],
    [
      ['n', 'é'.repeat(256)],
      ['n', `${'é'.repeat(255)}è`],
    ],
    // What a hashed name becomes is a name, too.
    [
      ['n', 'a'.repeat(200)],
      ['n', lockKey('n', 'a'.repeat(200)).slice(2)],
    ],
  ])('of %j is not that of %j', (one, other) => {
    expect(lockKey(...one)).not.toBe(lockKey(...other));
  });

  test('can be read, as long as it is harmless', () => {
    expect(lockKey('holdfast', 'order:42')).toBe('holdfast:order:42');
    expect(lockKey('my app', 'a b')).toBe('my%20app:a%20b');
    expect(tokenKey('holdfast')).toBe('holdfast:%token');
  });
});

describe('the server of a name', () => {
  const servers = Array.from({ length: 5 }, (_, at) => ({ host: `cache-${at}`, port: 11_211 }));
  const names = Array.from({ length: 1_000 }, (_, at) => `name-${at}`);
  const login = { user: undefined, password: undefined };
  const realm = realmsOf({ servers, ...login });

  test('is the same for everybody, in whatever order they list them', () => {
    const other = realmsOf({ servers: servers.toReversed(), ...login });
    expect(names.map(other)).toEqual(names.map(realm));
  });

  test('changes only for the names of a server that goes', () => {
    for (const gone of servers) {
      const rest = realmsOf({ servers: servers.filter((server) => server !== gone), ...login });
      for (const lock of names) if (realm(lock) !== `${gone.host}:${gone.port}`) expect(rest(lock)).toBe(realm(lock));
    }
  });

  test('is any of them, about as often as each other', () => {
    const counts = new Map<string, number>();
    for (const lock of names) counts.set(realm(lock), (counts.get(realm(lock)) ?? 0) + 1);
    expect(counts.size).toBe(servers.length);
    for (const count of counts.values()) expect(Math.abs(count - 200)).toBeLessThan(70);
  });
});
