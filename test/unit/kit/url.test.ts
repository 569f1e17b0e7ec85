import { inspect } from 'node:util';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { parseEngineUrl } from '../../../src/kit/url.js';
import { engineFromUrl } from '../../../src/schemes.js';

const parsed = (text: string): object => {
  const { params, ...rest } = parseEngineUrl(text);
  return { ...rest, params: Object.fromEntries(params) };
};

const nothing = { hosts: [], user: undefined, password: undefined, params: {}, path: '' };

describe("an engine's URL", () => {
  test.each([
    ['memory:', { ...nothing, scheme: 'memory' }],
    ['memory:other', { ...nothing, scheme: 'memory', path: 'other' }],
    ['MEMORY:Other', { ...nothing, scheme: 'memory', path: 'Other' }],
    ['sqlite:./dir/my locks%20.db', { ...nothing, scheme: 'sqlite', path: './dir/my locks%20.db' }],
    ['sqlite:/a@b:c.db?x=1', { ...nothing, scheme: 'sqlite', path: '/a@b:c.db', params: { x: '1' } }],
    ['sqlite:C:\\locks.db', { ...nothing, scheme: 'sqlite', path: 'C:\\locks.db' }],
  ])('%s is a scheme and a raw path', (text, expected) => {
    expect(parsed(text)).toEqual(expected);
  });

  test('has any number of hosts, with and without ports', () => {
    expect(parsed('redis+cluster://h1,h2:6380,10.0.0.1:1')).toEqual({
      ...nothing,
      scheme: 'redis+cluster',
      hosts: [
        { host: 'h1', port: undefined },
        { host: 'h2', port: 6380 },
        { host: '10.0.0.1', port: 1 },
      ],
    });
  });

  test('has IPv6 hosts in brackets', () => {
    expect(parsed('etcd://[::1]:2379,[fe80::1],[::ffff:1.2.3.4]')).toEqual({
      ...nothing,
      scheme: 'etcd',
      hosts: [
        { host: '::1', port: 2379 },
        { host: 'fe80::1', port: undefined },
        { host: '::ffff:1.2.3.4', port: undefined },
      ],
    });
  });

  test('has credentials, percent-decoded', () => {
    expect(parsed('mysql://bo%3Ab:p%40ss%2Fw%3Ard%25@db:3306/app')).toEqual({
      ...nothing,
      scheme: 'mysql',
      hosts: [{ host: 'db', port: 3306 }],
      user: 'bo:b',
      password: 'p@ss/w:rd%',
      path: '/app',
    });
  });

  test.each([
    ['redis://:secret@h', { user: undefined, password: 'secret' }],
    ['redis://bob@h', { user: 'bob', password: undefined }],
    ['redis://bob:@h', { user: 'bob', password: '' }],
    ['redis://bob:a:b@h', { user: 'bob', password: 'a:b' }],
    ['redis://bob:a@b@h', { user: 'bob', password: 'a@b' }],
    ['redis://bob:a,b#c@h', { user: 'bob', password: 'a,b#c' }],
  ])('%s', (text, expected) => {
    expect(parseEngineUrl(text)).toMatchObject({ ...expected, hosts: [{ host: 'h' }] });
  });

  test('has parameters, percent-decoded', () => {
    expect(parsed('redis://h/2?strategy=plain&key%20prefix=a%26b&flag&empty=&x=a=b')).toEqual({
      ...nothing,
      scheme: 'redis',
      hosts: [{ host: 'h', port: undefined }],
      path: '/2',
      params: { strategy: 'plain', 'key prefix': 'a&b', flag: '', empty: '', x: 'a=b' },
    });
  });

  test.each([
    [''],
    ['localhost'],
    ['//h'],
    ['1redis://h'],
    ['redis://'],
    ['redis:///path'],
    ['redis://h1,,h2'],
    ['redis://h:'],
    ['redis://h:0'],
    ['redis://h:65536'],
    ['redis://h:port'],
    ['redis://h h'],
    ['redis://[::1'],
    ['redis://::1'],
    ['redis://u:%zz@h'],
    ['redis://h?x=%e0%a4%a'],
    ['redis://u:12/3@h'],
    ['redis://u:12?3@h'],
  ])('%j is refused', (text) => {
    expect(() => parseEngineUrl(text)).toThrow(ConfigError);
  });
});

test.each([['mysql://h/%zz'], ['postgres://h/%zz'], ['redis+sentinel://h/%zz']])(
  '%s is refused, though only its engine knows what its path means',
  (text) => {
    expect(() => engineFromUrl(text)).toThrow(ConfigError);
  },
);

describe('a password in a URL', () => {
  const CANARY = 'Canary7';
  const SPECIAL = '/?#@:%&=,[]!$ +-.~|\\"\'{}\n\u0000é09azAZ';
  // What people forget to encode, and what a parser may trip over.
  const junk = fc.string({
    unit: fc.constantFrom(...SPECIAL.split(''), '%zz', '%2F', '://', '12'),
    maxLength: 6,
  });
  const scheme = fc.constantFrom('memory', 'redis', 'redis+cluster', 'mysql', 'nosuch', 'MEMORY');
  const tail = fc.constantFrom(
    '',
    '/0',
    '/app?strategy=nosuch',
    '?strategy=queue',
    '?nosuch=1',
    ':port',
    ':99999',
    ',',
  );
  const url = fc.oneof(
    fc
      .tuple(scheme, junk, junk, junk, junk, tail)
      .map(
        ([scheme, user, before, after, host, tail]) => `${scheme}://${user}:${before}${CANARY}${after}@h${host}${tail}`,
      ),
    fc
      .tuple(scheme, junk, junk, tail)
      .map(([scheme, before, after, tail]) => `${scheme}:${before}${CANARY}${after}@h${tail}`),
    fc.tuple(junk, junk).map(([before, after]) => `user:${before}${CANARY}${after}@h`),
  );

  test.each([['parsed', parseEngineUrl] as const, ['looked up', engineFromUrl] as const])(
    'is never in an error, however the URL is %s and whatever is wrong with it',
    (_, read) => {
      let refused = 0;
      fc.assert(
        fc.property(url, (text) => {
          let error: unknown;
          try {
            read(text);
          } catch (thrown) {
            error = thrown;
          }
          if (error === undefined) return;
          refused += 1;
          expect(error).toBeInstanceOf(ConfigError);
          expect(inspect(error, { depth: 10, showHidden: true })).not.toContain(CANARY);
          expect(JSON.stringify(error)).not.toContain(CANARY);
        }),
        { numRuns: 1_000 },
      );
      expect(refused, 'enough of them are wrong for this to mean something').toBeGreaterThan(100);
    },
  );
});
