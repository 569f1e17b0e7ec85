import { describe, expect, test } from 'vitest';
import { enterNesting } from '../../../src/cli/nesting.js';

const want = { kind: 'mutex' } as never;

function isInside(outer: string, inner: string): boolean {
  const { env } = enterNesting('a', want, outer, {});
  try {
    enterNesting('a', want, inner, env);
    return false;
  } catch {
    return true;
  }
}

describe('the same place, written in two ways', () => {
  test.each([
    ['redis://h', 'redis://h:6379/0'],
    ['redis://h:1', 'redis://h:1/0'],
    ['redis://h:1', 'redis://u:p@H:1/?epochGuard=false'],
    ['postgres://h/app', 'postgresql://u:p@h:5432/app'],
    ['mysql://h/app', 'mariadb://h:3306/app'],
    ['etcd://b,a', 'etcd://a:2379,b:2379'],
    ['zookeeper://h', 'zookeeper://h:2181/'],
  ])('%s and %s', (outer, inner) => expect(isInside(outer, inner)).toBe(true));
});

describe('two places', () => {
  test.each([
    ['redis://h:1', 'redis://h:2'],
    ['redis://h', 'redis://h/1'],
    ['redis://h', 'redis://h?strategy=plain'],
    ['postgres://h/app', 'postgres://h/other'],
    ['postgres://h/app', 'postgres://h/app?schema=other'],
  ])('%s and %s', (outer, inner) => expect(isInside(outer, inner)).toBe(false));
});

test('a path of nothing but slashes takes no time', { timeout: 5_000 }, () => {
  expect(isInside(`redis://h/${'/'.repeat(80_000)}x`, 'redis://h')).toBe(false);
});

test('nothing of a URL is in the environment of the command', () => {
  const { env } = enterNesting('a', want, 'redis://user:secret@host:1/0?sentinelPassword=hidden', {});
  expect(JSON.stringify(env)).not.toMatch(/user|secret|host|hidden/);
});
