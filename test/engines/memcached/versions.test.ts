/** A version is a number that a restarted memcached gives again, to somebody else. */
import { expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim } from '../../../src/core/engine.js';
import { Connection } from '../../../src/engines/memcached/connection.js';
import { MemcachedSlots } from '../../../src/engines/memcached/slots.js';
import { startMemcached } from '../../servers/memcached.js';
import { ask, LOOPBACK } from '../../servers/ports.js';
import { stored, TTL_MS } from './kit.js';

function store(port: number): MemcachedSlots & Disposable {
  const server = { host: LOOPBACK, port };
  const connection = new Connection({ server, user: undefined, password: undefined, clock: systemClock });
  const slots = new MemcachedSlots({ connection, namespace: 'holdfast', clock: systemClock, ttlMs: TTL_MS });
  return Object.assign(slots, { [Symbol.dispose]: () => connection.close() });
}

function claimOf(id: string): Claim {
  return { id, line: { kind: 'lock', name: 'job' }, serial: 1, weight: 1, capacity: 1, wait: true, note: '' };
}

test('whoever held before a restart neither renews nor frees what has the same version after it', async () => {
  await using server = await startMemcached();
  using before = store(server.port);
  using after = store(server.port);
  const versionNow = (): Promise<string> => ask(server.port, 'mg holdfast:job c\r\n');
  const { token: first } = await before.take(claimOf('before'));
  const version = await versionNow();
  await server.restart();
  const { token: second } = await after.take(claimOf('after'));
  expect(second).toBeGreaterThan(first!);
  // Else this test would prove nothing.
  expect(await versionNow()).toBe(version);

  // The first call may find only that its connection is gone.
  const lost = await before.keep([{ ...claimOf('before'), token: first! }]).catch(() => ['before']);
  expect(lost).toEqual(['before']);
  expect(await before.keep([{ ...claimOf('before'), token: first! }])).toEqual(['before']);
  expect(await stored(server.port, 'job')).toBe('after');
  expect(await before.drop(claimOf('before'))).toBe(false);
  expect(await stored(server.port, 'job')).toBe('after');
  expect(await after.drop(claimOf('after'))).toBe(true);
});

test('a version that a late command of ours has changed is read again: nothing is lost by it', async () => {
  await using server = await startMemcached();
  using one = store(server.port);
  using late = store(server.port);
  const { token } = await one.take(claimOf('same'));
  const held = [{ ...claimOf('same'), token: token! }];
  for (const slots of [late, one, late, one]) expect(await slots.keep(held)).toEqual([]);
  expect(await late.drop(claimOf('other'))).toBe(false);
  expect(await one.drop(claimOf('same'))).toBe(true);
});
