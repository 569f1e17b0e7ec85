/** What PostgreSQL's own locks make of a step that fails in the middle, and of those who wait for them inside the server. */
import { Client } from 'pg';
import { beforeEach, describe, expect, test } from 'vitest';
import { postgres } from '../../../src/engines/postgres/index.js';
import { Holdfast } from '../../../src/index.js';
import { track } from '../../../src/conformance/tracked.js';
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

/** Not the owner of the functions, so that its rights can be taken away. */
const appUrl = (): string => kit.url.replace('postgres@', 'app@');

async function mayCall(may: boolean, routines: readonly string[]): Promise<void> {
  const [verb, preposition] = may ? ['GRANT', 'TO'] : ['REVOKE', 'FROM'];
  for (const routine of routines)
    await kit.sql(`${verb} EXECUTE ON FUNCTION holdfast.holdfast_${routine} ${preposition} public`);
}

/** Readers of one instance that each have a claim of their own. */
function readers(): Holdfast {
  return new Holdfast(postgres(appUrl(), OPTIONS), { ttl: '1m', cohort: false });
}

/** What a statement that is refused leaves on its connection, which has other locks that must not suffer. */
describe('a refused statement', () => {
  beforeEach(async () => {
    await kit.locks(kit.url, { ...OPTIONS, ttl: '1m' }).ready();
    await kit.sql(`DO $$ BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'app') THEN CREATE ROLE app LOGIN; END IF;
    END $$`);
    await kit.sql('GRANT USAGE ON SCHEMA holdfast TO app');
    await kit.sql('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO app');
  });

  test('of a second reader takes nothing from the first', async () => {
    await using a = readers();
    const b = kit.locks(kit.url, { ...OPTIONS, ttl: '1m' });
    const first = await a.rwLock('refused-reader').read.acquire();
    await mayCall(false, ['take', 'mint']);
    try {
      await expect(a.rwLock('refused-reader').read.acquire()).rejects.toMatchObject({ code: 'HOLDFAST_ENGINE' });
    } finally {
      await mayCall(true, ['take', 'mint']);
    }
    expect(await b.rwLock('refused-reader').write.tryAcquire()).toBeUndefined();
    expect(first.held).toBe(true);
    await first.release();
    expect((await b.rwLock('refused-reader').write.acquire()).held).toBe(true);
  });

  test('of a second reader that was cancelled in the middle leaves nothing behind', async () => {
    await using a = readers();
    const b = kit.locks(kit.url, { ...OPTIONS, ttl: '1m' });
    const first = await a.rwLock('cancelled-reader').read.acquire();
    const stranger = new Client(kit.url);
    await stranger.connect();
    try {
      await stranger.query('BEGIN');
      await stranger.query(`SELECT FROM holdfast.holdfast_line WHERE line = 'alcancelled-reader' FOR UPDATE`);
      const second = a.rwLock('cancelled-reader').read.acquire();
      const cancelled = async (): Promise<boolean> =>
        (
          await kit.sql(
            `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = 'app'`,
          )
        ).length > 0;
      for (let times = 0; times < 3; times += 1) expect(await waitFor(cancelled, WITHIN_MS)).toBe(true);
      await stranger.query('ROLLBACK');
      const reader = await second;
      await first.release();
      expect(await b.rwLock('cancelled-reader').write.tryAcquire()).toBeUndefined();
      expect(reader.held).toBe(true);
      expect(await reader.release()).toBe(true);
    } finally {
      await stranger.end();
    }
    expect(await b.rwLock('cancelled-reader').write.tryAcquire()).toBeDefined();
  });

  test('of a release is asked again, though the connection has other locks', async () => {
    const a = kit.locks(appUrl(), { ...OPTIONS, ttl: '3s' });
    const b = kit.locks(kit.url, { ...OPTIONS, ttl: '1m' });
    const other = await a.mutex('other').acquire();
    const lease = await a.mutex('refused-release').acquire();
    await mayCall(false, ['drop', 'free']);
    try {
      await lease.release();
      expect(await b.mutex('refused-release').tryAcquire()).toBeUndefined();
    } finally {
      await mayCall(true, ['drop', 'free']);
    }
    expect((await b.mutex('refused-release').acquire({ timeout: '30s' })).held).toBe(true);
    expect(other.held).toBe(true);
  });

  test('of a release does not stand in the way of its own instance', async () => {
    const a = kit.locks(appUrl(), { ...OPTIONS, ttl: '1m' });
    const lease = await a.mutex('own').acquire();
    await mayCall(false, ['drop']);
    await lease.release();
    await mayCall(true, ['drop']);
    const next = await a.mutex('own').acquire();
    expect(next.token).toBeGreaterThan(lease.token);
    expect(
      await kit
        .locks(kit.url, { ...OPTIONS, ttl: '1m' })
        .mutex('own')
        .tryAcquire(),
    ).toBeUndefined();
  });

  test('of a downgrade is asked again, and its reader leaves nothing behind', async () => {
    await using a = readers();
    const writer = await a.rwLock('refused-downgrade').write.acquire();
    await mayCall(false, ['wake']);
    const downgrading = writer.downgrade();
    // It may wait for the right to tell others that readers may come.
    await mayCall(true, ['wake']);
    const reader = await downgrading;
    const b = kit.locks(kit.url, { ...OPTIONS, ttl: '1m' });
    const beside = await b.rwLock('refused-downgrade').read.acquire();
    await reader.release();
    await beside.release();
    expect(await waitFor(async () => (await advisoryLocks()).length === 0, WITHIN_MS)).toBe(true);
  });
});
