/** Locks that belong to a connection, when that connection breaks or has lost the lock without a word. */
import type { PoolConnection } from 'mysql2';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { waitFor } from '../../servers/wait.js';
import { Stage } from './kit.js';
import { columns, overheard } from './overheard.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

async function killAll(): Promise<void> {
  const rows = await sql(server.port, 'SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()');
  for (const { id } of rows) await sql(server.port, `KILL CONNECTION ${id}`).catch(() => {});
}

test.each(['for-update', 'get-lock'] as const)(
  '%s: a killed connection is told at once, long before the ttl',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    const locks = stage.byUrl(`strategy=${strategy}`, { ttl: '10m' });
    const lease = await locks.mutex('killed').acquire();
    await killAll();
    // It takes some milliseconds; a beat would come after minutes.
    expect(await waitFor(() => !lease.held, 5_000)).toBe(true);
    const next = await locks.mutex('killed').acquire({ timeout: '30s' });
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
  },
);

test.each(['for-update', 'get-lock'] as const)(
  '%s: what was released is free, though its connection is kept',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    const [a, b] = [stage.byUrl(`strategy=${strategy}`), stage.byUrl(`strategy=${strategy}`)];
    await a.mutex('released').run(() => {});
    expect(await b.mutex('released').tryAcquire()).toBeDefined();
  },
);

/** Frees what any connection of a pool has, as whoever shares it could. */
function freeAll(connections: readonly PoolConnection[]): Promise<unknown> {
  return Promise.all(connections.map((connection) => connection.promise().query('DO RELEASE_ALL_LOCKS()')));
}

test('get-lock: a lock that is not on its connection any more is lost with the next beat', async () => {
  await using stage = new Stage(() => server.port);
  const pool = stage.pool();
  const connections: PoolConnection[] = [];
  pool.on('connection', (connection) => connections.push(connection));
  const actor = await stage.actor({ strategy: 'get-lock' }, 'pinned', pool);
  const { claim } = await actor.hold({ name: 'freed' });
  expect(await actor.beat({ held: [claim] })).toEqual({ alive: true });
  expect(actor.lossOf(claim)).toBeUndefined();
  await freeAll(connections);
  await actor.beat({ held: [claim] });
  expect(actor.lossOf(claim)).toEqual({ reason: 'session' });
});

test.each(['for-update', 'get-lock'] as const)(
  '%s: a lock on a server that became read-only is lost with the next beat',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    const actor = await stage.actor({ strategy }, 'pinned');
    const { claim } = await actor.hold({ name: 'demoted' });
    await sql(server.port, 'SET GLOBAL read_only = 1');
    try {
      await actor.beat({ held: [claim] });
      expect(actor.lossOf(claim)).toBeDefined();
      // Who could write all the same would still be on the wrong server.
      await expect(actor.session.enter(actor.claim({ name: 'demoted' }))).rejects.toThrow(/^The database is read-only/);
    } finally {
      await sql(server.port, 'SET GLOBAL read_only = 0');
    }
  },
);

test('get-lock: a lock that was lost before its token was minted is not granted', async () => {
  await using stage = new Stage(() => server.port);
  const pool = stage.pool();
  const connections: PoolConnection[] = [];
  pool.on('connection', (connection) => connections.push(connection));
  const tapped = overheard(pool, async (statement) => {
    if (statement.startsWith('INSERT INTO holdfast_mint')) await freeAll(connections);
  });
  const actor = await stage.actor({ strategy: 'get-lock' }, 'pinned', tapped);
  await expect(actor.session.enter(actor.claim({ name: 'tokenless' }))).rejects.toThrow('lost before it was granted');
});

test.each(['for-update', 'get-lock'] as const)(
  '%s: no answer has columns that are called after a lock, of which mysql2 would keep a parser each',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    const asked = async (name: string): Promise<ReadonlySet<string>> => {
      const names = new Set<string>();
      const pool = columns(stage.pool(), (heard) => names.add(heard.join(', ')));
      const actor = await stage.actor({ strategy }, 'columns', pool);
      const { claim } = await actor.hold({ name });
      await actor.beat({ held: [claim] });
      return names;
    };
    expect(await asked('one')).toEqual(await asked('another'));
  },
);

test('for-update: downgrades of two names do not stand in each other’s way', async () => {
  await using stage = new Stage(() => server.port);
  const [a, b, c] = [1, 2, 3].map(() => stage.locks({ strategy: 'for-update' }, { namespace: 'apart' })) as [
    Locks,
    Locks,
    Locks,
  ];
  // It has looked for its own row among the readers that were writers, where there is none.
  const beside = await a.mutex('a').acquire();
  const writer = await b.rwLock('b').write.acquire();
  const reader = await writer.downgrade();
  const another = await c.rwLock('b').read.acquire({ timeout: '5s' });
  expect([beside.held, reader.held, another.held]).toEqual([true, true, true]);
});

type Locks = ReturnType<Stage['locks']>;
