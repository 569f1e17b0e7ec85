import { describe, expect, test } from 'vitest';
import { EngineError, type LeaseLostError } from '../../../src/index.js';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit();
/** For what is bound to happen. */
const WITHIN_MS = 30_000;

/** Whether the last thing said on every connection that listens was a beat. */
async function beatsBesideThePool(): Promise<boolean> {
  const [row] = await kit.sql<{ listening: string; beating: string }>(
    `SELECT count(*) FILTER (WHERE query LIKE 'LISTEN%') AS listening,
        count(*) FILTER (WHERE query LIKE '%holdfast_beat%') AS beating
      FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
  );
  return row!.listening === '0' && row!.beating === '1';
}

describe('queue', () => {
  test('ended connections cost nobody a lock, and a waiter is still served', async () => {
    const [a, b] = [kit.locks(), kit.locks()];
    const lease = await a.mutex('x').acquire();
    const waiting = b.mutex('x').acquire();
    await waitFor(async () => (await kit.count('claim', 'NOT held')) === 1, WITHIN_MS);
    await kit.endConnections();
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
    const next = await waiting;
    expect(next.token).toBeGreaterThan(lease.token);
  });

  test('a server that is killed and comes back within the ttl keeps locks and tokens', async () => {
    const locks = kit.locks(kit.url, { ttl: '30s' });
    const lease = await locks.mutex('x').acquire();
    await kit.server.kill();
    await kit.server.restart();
    expect(await kit.locks().mutex('x').tryAcquire()).toBeUndefined();
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
    const next = await kit.locks().mutex('x').acquire();
    expect(next.token).toBeGreaterThan(lease.token);
  });

  test('a hung server is an EngineError, and all goes on when it answers again', async () => {
    const locks = kit.locks(kit.url, { ttl: '3s' });
    await locks.mutex('warm').run(() => {});
    await kit.server.pause();
    try {
      await expect(locks.mutex('x').acquire({ timeout: '1s' })).rejects.toBeInstanceOf(EngineError);
    } finally {
      kit.server.resume();
    }
    const lease = await locks.mutex('x').acquire();
    expect(lease.held).toBe(true);
  });

  test('a reply that is lost is asked for again, and nothing is left behind', async () => {
    const { proxy, url } = await kit.throughProxy();
    const locks = kit.locks(url, { ttl: '6s' });
    await locks.mutex('warm').run(() => {});
    const lost = proxy.loseReplyOf((request) => request.includes('lost-reply'));
    const lease = await locks.mutex('lost-reply').acquire();
    await lost;
    expect(await lease.release()).toBe(true);
    expect(await waitFor(async () => (await kit.count('claim', `line = 'llost-reply'`)) === 0, WITHIN_MS)).toBe(true);
  });

  test('a listener that went deaf is connected anew', async () => {
    const { proxy, url } = await kit.throughProxy();
    const [a, b] = [kit.locks(), kit.locks(url, { ttl: '3s' })];
    const lease = await a.mutex('x').acquire();
    const waiting = b.mutex('x').acquire();
    await waitFor(async () => (await kit.count('claim', 'NOT held')) === 1, WITHIN_MS);
    proxy.set({ mode: 'cut' });
    await lease.release();
    proxy.heal();
    expect((await waiting).held).toBe(true);
  });

  test('an exhausted pool is an error that says so; a held lock outlives it', async () => {
    const pool = kit.pool({ max: 1 });
    const locks = kit.locks(pool, { ttl: '6s' });
    const lease = await locks.mutex('x').acquire();
    // Until it is proven that the other connection hears, beats go over the pool as well.
    expect(await waitFor(beatsBesideThePool, WITHIN_MS)).toBe(true);
    const mine = await pool.connect();
    try {
      await expect(locks.mutex('y').acquire({ timeout: '7s' })).rejects.toThrow('connections of the pool were in use');
      expect(lease.held).toBe(true);
    } finally {
      mine.release();
    }
    expect(await lease.release()).toBe(true);
  });

  test('a pool of the user’s is not closed', async () => {
    const pool = kit.pool();
    const locks = kit.locks(pool);
    await locks.mutex('x').run(() => {});
    await locks.close();
    expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });

  test('who wants many locks in any order, with sessions that come and go, never hears of a deadlock', async () => {
    const names = Array.from({ length: 12 }, (_, at) => `name-${at}`);
    const pick = (): string => names[Math.floor(Math.random() * names.length)]!;
    const storm = async (): Promise<void> => {
      for (let round = 0; round < 4; round += 1) {
        const locks = kit.locks(kit.url, { ttl: '30s', namespace: 'storm' });
        await Promise.all(
          Array.from({ length: 12 }, async () => {
            const lock = locks.all([locks.mutex(pick()), locks.rwLock(pick()).read, locks.semaphore(pick(), 3)]);
            await lock.run(() => {});
          }),
        );
        await locks.close();
      }
    };
    await Promise.all(Array.from({ length: 6 }, storm));
    expect(await kit.count('claim', `namespace = 'storm'`)).toBe(0);
    expect(await kit.count('session', `namespace = 'storm'`)).toBe(0);
    const [{ deadlocks }] = (await kit.sql<{ deadlocks: string }>(
      `SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'`,
    )) as [{ deadlocks: string }];
    expect(Number(deadlocks)).toBe(0);
  });
});

describe('advisory', () => {
  const advisory = { strategy: 'advisory' } as const;

  test('the end of its connection is told at once, and the next is let in', async () => {
    const [a, b] = [kit.locks(kit.url, advisory), kit.locks(kit.url, advisory)];
    const lease = await a.mutex('x').acquire();
    const lost = new Promise<LeaseLostError>((resolve) =>
      lease.signal.addEventListener('abort', () => resolve(lease.signal.reason as LeaseLostError)),
    );
    await kit.endConnections();
    expect((await lost).reason).toBe('connection');
    expect(lease.held).toBe(false);
    const next = await b.mutex('x').acquire();
    expect(next.token).toBeGreaterThan(lease.token);
    await a.mutex('y').run(() => {});
  });

  test('a link that fell silent frees its locks after the ttl, and its holder knows before', async () => {
    const { proxy, url } = await kit.throughProxy();
    const a = kit.locks(url, { ...advisory, ttl: '2s' });
    const lease = await a.mutex('x').acquire();
    proxy.set({ mode: 'freeze' });
    const next = await kit.locks(kit.url, advisory).mutex('x').acquire();
    expect(lease.held).toBe(false);
    expect(next.held).toBe(true);
    proxy.heal();
  });

  test('no connection of the pool ever has a lock on it', async () => {
    const pool = kit.pool({ max: 2 });
    const locks = kit.locks(pool, advisory);
    await locks.mutex('x').acquire();
    await locks.rwLock('y').read.acquire();
    const pids = new Set<number>();
    const clients = await Promise.all([pool.connect(), pool.connect()]);
    for (const client of clients) {
      const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      pids.add(rows[0]!.pid);
      client.release();
    }
    const held = await kit.sql<{ pid: number }>(`SELECT pid FROM pg_locks WHERE locktype = 'advisory'`);
    expect(held.length).toBeGreaterThanOrEqual(2);
    expect(held.filter(({ pid }) => pids.has(pid))).toEqual([]);
  });

  test('tokens outlive the server', async () => {
    const first = await kit.locks(kit.url, advisory).mutex('x').acquire();
    await kit.server.kill();
    await kit.server.restart();
    const second = await kit.locks(kit.url, advisory).mutex('x').acquire();
    expect(second.token).toBeGreaterThan(first.token);
  });
});
