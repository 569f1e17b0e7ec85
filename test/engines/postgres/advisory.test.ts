/** What PostgreSQL's own locks make of a step that fails in the middle, and of those who wait for them inside the server. */
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { track } from '../../../src/testing/tracked.js';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit();
const WITHIN_MS = 30_000;
const OPTIONS = { strategy: 'advisory' } as const;

interface Lock {
  readonly key: string;
  readonly mode: string;
  readonly granted: boolean;
}

/** Session locks of 64 bits, whoever has them or waits for them. */
function advisoryLocks(): Promise<Lock[]> {
  return kit.sql<Lock>(
    `SELECT ((classid::bigint << 32) | objid::bigint)::text AS key, mode, granted FROM pg_locks
      WHERE locktype = 'advisory' AND objsubid = 1`,
  );
}

test('a lock whose token could not be minted is held by nobody', async () => {
  const locks = kit.locks(kit.url, { ...OPTIONS, ttl: '1m' });
  await locks.ready();
  await kit.sql(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'no tokens today'; END $$`);
  await kit.sql(`CREATE TRIGGER refuse BEFORE INSERT ON holdfast.holdfast_line FOR EACH ROW EXECUTE FUNCTION refuse()`);
  try {
    await expect(locks.mutex('tokenless').tryAcquire()).rejects.toMatchObject({ code: 'HOLDFAST_ENGINE' });
  } finally {
    await kit.sql('DROP TRIGGER refuse ON holdfast.holdfast_line');
  }
  expect(await advisoryLocks()).toEqual([]);
});

test('a downgrade lets nobody in who waits for the writer inside the server', async () => {
  const locks = kit.locks(kit.url, { ...OPTIONS, ttl: '1m' });
  const own = await locks.rwLock('downgraded').write.acquire();
  const [held] = await advisoryLocks();
  const stranger = new Client(kit.url);
  await stranger.connect();
  try {
    const waiting = track(stranger.query('SELECT pg_advisory_lock($1)', [held!.key]));
    expect(await waitFor(async () => (await advisoryLocks()).length === 2, WITHIN_MS)).toBe(true);
    const downgrading = track(own.downgrade());
    const shared = async (): Promise<Lock | undefined> =>
      (await advisoryLocks()).find(({ mode }) => mode === 'ShareLock');
    // Granted or not: it must not have to wait.
    expect(await waitFor(async () => (await shared()) !== undefined, WITHIN_MS)).toBe(true);
    expect(await shared()).toMatchObject({ granted: true });
    expect(waiting.state).toBe('pending');
    await (await downgrading.promise).release();
    await waiting.promise;
  } finally {
    await stranger.end();
  }
});
