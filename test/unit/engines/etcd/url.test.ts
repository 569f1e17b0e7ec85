import { expect, test } from 'vitest';
import { parseEngineUrl } from '../../../../src/kit/url.js';
import { etcd } from '../../../../src/engines/etcd/index.js';
import { etcdUrl } from '../../../../src/engines/etcd/url.js';
import { ConfigError, Holdfast } from '../../../../src/index.js';

const read = (text: string): ReturnType<typeof etcdUrl> => etcdUrl(parseEngineUrl(text));

test('a URL names members, a user, and files where it is encrypted', () => {
  expect(read('etcd://h1:2380,h2,[::1]:3')).toMatchObject({
    tls: false,
    hosts: [
      { host: 'h1', port: 2_380 },
      { host: 'h2', port: 2_379 },
      { host: '::1', port: 3 },
    ],
  });
  expect(read('etcds://u:p%40@h1/?ca=/a.pem&cert=/b.pem&key=/c.pem')).toMatchObject({
    tls: true,
    user: 'u',
    password: 'p@',
    files: { ca: '/a.pem', cert: '/b.pem', key: '/c.pem' },
  });
});

test('what can’t be meant is refused when the Holdfast is made', () => {
  for (const url of [
    'etcd:name',
    'etcd://h1/path',
    'etcd://h1?ca=/a.pem',
    'etcds://h1?cert=/b.pem',
    'etcd://h1?strategy=poll',
    'etcd://h1?timeout=1',
  ])
    expect(() => new Holdfast(url), url).toThrow(ConfigError);
  expect(() => etcd('etcd://h1', { tls: {} })).toThrow(ConfigError);
  expect(() => etcd(['h1/path'])).toThrow(ConfigError);
  expect(() => new Holdfast('etcd://h1', { ttl: '1s' })).toThrow(ConfigError);
});
