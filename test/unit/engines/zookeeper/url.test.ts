import { expect, test } from 'vitest';
import { parseEngineUrl } from '../../../../src/kit/url.js';
import { zookeeper } from '../../../../src/engines/zookeeper/index.js';
import { zookeeperUrl } from '../../../../src/engines/zookeeper/url.js';
import { ConfigError, Holdfast } from '../../../../src/index.js';

const read = (text: string): ReturnType<typeof zookeeperUrl> => zookeeperUrl(parseEngineUrl(text));

test('a URL names servers, a user, a chroot, and files where it is encrypted', () => {
  expect(read('zookeeper://h1:2182,h2,[::1]:3/a/b')).toMatchObject({
    tls: false,
    chroot: '/a/b',
    hosts: [
      { host: 'h1', port: 2_182 },
      { host: 'h2', port: 2_181 },
      { host: '::1', port: 3 },
    ],
  });
  expect(read('zookeepers://u:p%40@h1/?ca=/a.pem&cert=/b.pem&key=/c.pem')).toMatchObject({
    tls: true,
    chroot: '',
    hosts: [{ host: 'h1', port: 2_281 }],
    user: 'u',
    password: 'p@',
    files: { ca: '/a.pem', cert: '/b.pem', key: '/c.pem' },
  });
});

test('what can’t be meant is refused when the Holdfast is made', () => {
  for (const url of [
    'zookeeper:name',
    'zookeeper://h1//a',
    'zookeeper://h1/a/../b',
    'zookeeper://h1/a/.',
    'zookeeper://h1?ca=/a.pem',
    'zookeepers://h1?cert=/b.pem',
    'zookeeper://h1?strategy=poll',
    'zookeeper://h1?timeout=1',
    'zookeeper://a%3Ab:c@h1',
  ])
    expect(() => new Holdfast(url), url).toThrow(ConfigError);
  expect(() => zookeeper('zookeeper://h1', { tls: {} })).toThrow(ConfigError);
  expect(() => zookeeper(['h1/a//b'])).toThrow(ConfigError);
  expect(() => new Holdfast('zookeeper://h1', { ttl: '1s' })).toThrow(ConfigError);
});
