/**
 * A server that crashes where synchronous_commit is off. It then forgets what was committed last, here that of ten seconds:
 * what a promise rests on must not be among it.
 */
import { expect, test } from 'vitest';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit({ settings: { synchronous_commit: 'off', wal_writer_delay: '10000', autovacuum: 'off' } });
const WITHIN_MS = 30_000;

async function crash(): Promise<void> {
  await kit.server.kill();
  await kit.server.restart();
}

async function expires(namespace: string): Promise<string> {
  const [row] = await kit.sql<{ expires: string }>(
    `SELECT expires::text FROM holdfast.holdfast_session WHERE namespace = $1`,
    [namespace],
  );
  return row!.expires;
}

test('a beat is as durable as a grant: after a crash there are not two holders', async () => {
  const namespace = 'beat';
  const { proxy, url } = await kit.throughProxy();
  const lease = await kit.locks(url, { ttl: '4s', namespace }).mutex('x').acquire();
  const first = await expires(namespace);
  expect(await waitFor(async () => (await expires(namespace)) > first, WITHIN_MS)).toBe(true);
  proxy.set({ mode: 'freeze' });
  const last = await expires(namespace);
  await crash();
  expect(await expires(namespace)).toBe(last);
  const next = await kit.locks(kit.url, { ttl: '30s', namespace }).mutex('x').acquire();
  expect(lease.held).toBe(false);
  expect(next.token).toBeGreaterThan(lease.token);
});

test('what a register was told, and which token it was shown, outlives a crash', async () => {
  const [a, b] = [kit.locks(kit.url, { ttl: '1m' }), kit.locks(kit.url, { ttl: '1m' })];
  const older = await a.mutex('told').acquire();
  await older.release();
  const newer = await b.mutex('told').acquire();
  await b.register('told').set('new', newer);
  const olderReader = await a.rwLock('shown').read.acquire();
  await olderReader.release();
  const writer = await b.rwLock('shown').write.acquire();
  await b.register('shown').get(writer);
  await crash();
  expect(await kit.locks().register('told').get()).toMatchObject({ value: 'new', token: newer.token });
  await expect(a.register('shown').get(olderReader)).rejects.toMatchObject({ code: 'HOLDFAST_STALE_TOKEN' });
});

test('an eviction outlives a crash, though its holder has not heard of it', async () => {
  const { proxy, url } = await kit.throughProxy();
  const namespace = 'evicted';
  await kit.locks(url, { ttl: '1m', namespace }).mutex('x').acquire();
  const operator = kit.locks(kit.url, { ttl: '1m', namespace });
  const { claims } = await operator.mutex('x').inspect();
  proxy.set({ mode: 'freeze' });
  expect(await operator.evict('x', claims[0]!.id, 'stuck')).toBe(true);
  await crash();
  expect(await kit.count('claim', `namespace = 'evicted' AND evicted IS NOT NULL`)).toBe(1);
});
