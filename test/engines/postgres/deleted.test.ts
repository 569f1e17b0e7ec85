/** Rows that somebody deleted by hand, one table at a time: exclusion may suffer, but nobody waits for ever. */
import { expect, test } from 'vitest';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit();
const WITHIN_MS = 30_000;

function remove(table: string, namespace: string): Promise<unknown> {
  return kit.sql(`DELETE FROM holdfast.holdfast_${table} WHERE namespace = $1`, [namespace]);
}

function waits(namespace: string, count = 1): Promise<boolean> {
  return waitFor(
    async () => (await kit.count('claim', `NOT held AND namespace = '${namespace}'`)) === count,
    WITHIN_MS,
  );
}

test('lines: who holds goes on holding, who comes waits behind who waited, and all are served', async () => {
  const namespace = 'lines';
  const [a, b, c] = [0, 1, 2].map(() => kit.locks(kit.url, { namespace, ttl: '4s' }));
  const first = await a!.mutex('x').acquire();
  const second = b!.mutex('x').acquire();
  expect(await waits(namespace)).toBe(true);
  await remove('line', namespace);
  expect(await c!.mutex('x').tryAcquire()).toBeUndefined();
  const third = c!.mutex('x').acquire();
  expect(await waits(namespace, 2)).toBe(true);
  expect(await first.release()).toBe(true);
  expect((await second).token).toBeGreaterThan(first.token);
  await (await second).release();
  expect((await third).token).toBeGreaterThan((await second).token);
});

test('lines, and nobody comes: who waited is served all the same', async () => {
  const namespace = 'nobody';
  const [a, b] = [0, 1].map(() => kit.locks(kit.url, { namespace, ttl: '4s' }));
  const first = await a!.semaphore('x', 2).acquire({ permits: 2 });
  const second = b!.semaphore('x', 2).acquire();
  expect(await waits(namespace)).toBe(true);
  await remove('line', namespace);
  await first.release();
  expect((await second).held).toBe(true);
});

test('claims: who held is told, and the lock is not taken for ever', async () => {
  const namespace = 'claims';
  const [a, b, c] = [0, 1, 2].map(() => kit.locks(kit.url, { namespace, ttl: '4s' }));
  const first = await a!.mutex('x').acquire();
  const second = b!.mutex('x').run((lease) => lease.held);
  expect(await waits(namespace)).toBe(true);
  await remove('claim', namespace);
  expect(await c!.mutex('x').run((lease) => lease.held)).toBe(true);
  expect(await second).toBe(true);
  expect(await waitFor(async () => !first.held, WITHIN_MS)).toBe(true);
});

test('lines and sessions: orphans that no line has counted do not make it forget who waits', async () => {
  const namespace = 'orphans';
  const [a, b, c] = [0, 1, 2].map(() => kit.locks(kit.url, { namespace, ttl: '4s' }));
  const lost = await a!.mutex('x').acquire();
  const waiting = b!.mutex('x').acquire();
  expect(await waits(namespace)).toBe(true);
  await remove('line', namespace);
  await remove('session', namespace);
  const next = await c!.mutex('x').acquire();
  expect(await waitFor(async () => !lost.held, WITHIN_MS)).toBe(true);
  await waitFor(async () => (await kit.count('claim', `NOT held AND namespace = '${namespace}'`)) > 0, WITHIN_MS);
  await next.release();
  expect((await waiting).held).toBe(true);
});
