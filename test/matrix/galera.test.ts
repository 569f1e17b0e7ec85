/**
 * Two nodes of Galera, which both take writes and know nothing of each other's row locks: what a fence, optimistic rows and each
 * strategy of locks exclude there. docs/fencing.md and docs/engines/mysql.md say it. It takes a while, so it runs for
 * `npm run test:matrix -- galera` only.
 */
import { createPool, type Pool, type PoolOptions } from 'mysql2';
import type { RowDataPacket } from 'mysql2/promise';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mysql } from '../../src/engines/mysql/index.js';
import { fence, migrate } from '../../src/fence/index.js';
import { ConfigError, Holdfast, type Lease, StaleTokenError } from '../../src/index.js';
import { optimistic } from '../../src/optimistic/index.js';
import { type GaleraCluster, startGalera } from '../servers/galera.js';
import { sql } from '../servers/mariadb.js';
import type { Server } from '../servers/server.js';
import { eventually } from '../servers/wait.js';

const ROUNDS = 80;
/** What Galera tells a transaction that lost against one of another node. */
const LOST_TO_ANOTHER = 1213;

let cluster: GaleraCluster;
let pools: readonly [Pool, Pool];

beforeAll(async () => {
  cluster = await startGalera();
  const [one, two] = cluster.nodes.map((node) => createPool(whereOf(node)));
  pools = [one!, two!];
  await sql(
    cluster.nodes[0].port,
    'CREATE TABLE ledger (resource VARCHAR(64), who VARCHAR(8), PRIMARY KEY (resource, who))',
  );
  await migrate(one!);
  await sql(
    cluster.nodes[0].port,
    'CREATE USER plain; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO plain',
  );
  await eventually('the second node has the tables', () =>
    sql(cluster.nodes[1].port, 'SELECT 1 FROM ledger, holdfast_fence'),
  );
});
afterAll(async () => {
  await Promise.all((pools ?? []).map((pool) => pool.promise().end()));
  await cluster?.[Symbol.asyncDispose]();
});

/** @param user `plain` may not make or run routines */
function whereOf({ host, port }: Server, user: 'root' | 'plain' = 'root'): PoolOptions {
  return { host, port, user, database: 'test' };
}

/** What is written is seen by whoever comes after it. */
async function write(pool: Pool, resource: string, who: string, token: bigint): Promise<readonly string[]> {
  return fence(pool.promise()).transaction(resource, token, async (tx) => {
    const [rows] = await tx.query<RowDataPacket[]>('SELECT who FROM ledger WHERE resource = ?', [resource]);
    await tx.query('INSERT INTO ledger VALUES (?, ?)', [resource, who]);
    return rows.map((row) => String(row['who']));
  });
}

const has = async (resource: string, who: string): Promise<boolean> =>
  (await sql(cluster.nodes[0].port, `SELECT 1 FROM ledger WHERE resource = '${resource}' AND who = '${who}'`)).length >
  0;

async function isShown(resource: string): Promise<void> {
  const found = await sql(cluster.nodes[1].port, `SELECT 1 FROM holdfast_fence WHERE name = '${resource}'`);
  expect(found).toHaveLength(1);
}

/** As the page asks of a user: with the whole transaction, again. */
async function insist(pool: Pool, resource: string, who: string, token: bigint): Promise<readonly string[]> {
  for (;;) {
    try {
      return await write(pool, resource, who, token);
    } catch (error) {
      if ((error as { errno?: number }).errno !== LOST_TO_ANOTHER) throw error;
    }
  }
}

function expectRefused(outcome: unknown): void {
  if (outcome instanceof StaleTokenError) return;
  expect(outcome).toMatchObject({ errno: LOST_TO_ANOTHER });
}

describe('a fence', () => {
  test('of a holder and its successor, at once on two nodes, the successor sees what the holder has committed', async () => {
    let both = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      const resource = `at-once-${round}`;
      await fence(pools[0].promise()).transaction(resource, 100n, () => {});
      const [ada, seen] = await Promise.all([
        write(pools[0], resource, 'ada', 100n).catch((error: unknown) => error),
        insist(pools[1], resource, 'ben', 101n),
      ]);
      const isAdaIn = Array.isArray(ada);
      if (!isAdaIn) expectRefused(ada);
      if (isAdaIn) both += 1;
      expect(await has(resource, 'ada'), resource).toBe(isAdaIn);
      expect(seen, resource).toEqual(isAdaIn ? ['ada'] : []);
    }
    console.log(`fence on Galera, at once: of ${ROUNDS} rounds ${both} with both, the second of whom saw the first`);
  });

  test('a holder whose successor has committed on the other node never commits', async () => {
    let stale = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      const resource = `in-turn-${round}`;
      await fence(pools[0].promise()).transaction(resource, 100n, () => {});
      await insist(pools[1], resource, 'ben', 101n);
      const ada = await write(pools[0], resource, 'ada', 100n).catch((error: unknown) => error);
      expectRefused(ada);
      if (ada instanceof StaleTokenError) stale += 1;
      expect(await has(resource, 'ada'), resource).toBe(false);
    }
    console.log(`fence on Galera, in turn: of ${ROUNDS} rounds ${stale} refused as stale, the others at COMMIT (1213)`);
  });

  test.each(['shown before', 'new'])(
    'a holder that was overtaken inside of its transaction does not commit (a fence that is %s)',
    async (age) => {
      for (let round = 0; round < 20; round += 1) {
        const resource = `inside-${age}-${round}`;
        if (age === 'shown before') await fence(pools[0].promise()).transaction(resource, 100n, () => {});
        const ada = fence(pools[0].promise()).transaction(resource, 100n, async (tx) => {
          await insist(pools[1], resource, 'ben', 101n);
          await tx.query('INSERT INTO ledger VALUES (?, ?)', [resource, 'ada']);
        });
        expectRefused(await ada.catch((error: unknown) => error));
        expect(await has(resource, 'ada'), resource).toBe(false);
      }
    },
  );

  test('a successor that read before the holder has committed on the other node does not commit', async () => {
    for (let round = 0; round < 20; round += 1) {
      const resource = `behind-${round}`;
      await fence(pools[0].promise()).transaction(resource, 100n, () => {});
      await eventually('the other node has it', () => isShown(resource));
      const ben = fence(pools[1].promise()).transaction(resource, 101n, async (tx) => {
        const [rows] = await tx.query<RowDataPacket[]>('SELECT who FROM ledger WHERE resource = ?', [resource]);
        expect(rows).toEqual([]);
        await write(pools[0], resource, 'ada', 100n);
      });
      expectRefused(await ben.catch((error: unknown) => error));
      expect(await insist(pools[1], resource, 'ben', 101n)).toEqual(['ada']);
    }
  });

  test('a reader that was overtaken inside of its transaction does not commit, nor does a writer that a reader has passed', async () => {
    for (const [held, next] of [
      [true, false],
      [false, true],
    ] as const) {
      const resource = `shared-${held}`;
      await fence(pools[0].promise()).transaction(resource, 100n, () => {}, { shared: held });
      const overtaken = fence(pools[0].promise()).transaction(
        resource,
        100n,
        async () => {
          await fence(pools[1].promise()).transaction(resource, 101n, () => {}, { shared: next });
        },
        { shared: held },
      );
      expectRefused(await overtaken.catch((error: unknown) => error));
    }
  });
});

test('optimistic rows lose no update of two nodes', async () => {
  await sql(
    cluster.nodes[0].port,
    'CREATE TABLE seat (id INT PRIMARY KEY, stock INT, version INT); INSERT INTO seat VALUES (1, 0, 1)',
  );
  await eventually('the second node has it', async () =>
    expect(await sql(cluster.nodes[1].port, 'SELECT * FROM seat')).toHaveLength(1),
  );
  const rows = pools.map((pool) => optimistic<{ stock: number }>(pool, { table: 'seat' }));
  await Promise.all(
    Array.from({ length: 60 }, (_, at) =>
      rows[at % 2]!.update(1, ({ stock }) => ({ stock: stock + 1 }), { retries: 1_000 }),
    ),
  );
  await eventually('all of it is on both', async () => {
    for (const { port } of cluster.nodes) expect((await sql(port, 'SELECT stock FROM seat'))[0]!['stock']).toBe(60);
  });
});

describe.each([
  ['queue', 'root'],
  ['queue', 'plain'],
  ['row', 'root'],
  ['version', 'root'],
] as const)('%s, as %s', (strategy, user) => {
  const TURNS = 40;
  const WORKERS = 6;

  /** One that has its connections for itself, on the one or the other node. */
  function locksOn(at: number, ttl: '2s' | '10s' = '10s'): Holdfast {
    const { host, port } = cluster.nodes[at % 2]!;
    return new Holdfast(`mysql://${user}@${host}:${port}/test?strategy=${strategy}`, { ttl, namespace: user });
  }

  test('excludes across two writers, and tokens grow', async () => {
    const workers = Array.from({ length: WORKERS }, (_, at) => locksOn(at));
    const inside = new Set<Lease>();
    const tokens: bigint[] = [];
    try {
      await Promise.all(
        workers.map(async (locks) => {
          for (let turn = 0; turn < TURNS; turn += 1)
            await locks.mutex('busy').run({ timeout: '2m' }, async (lease) => {
              inside.add(lease);
              tokens.push(lease.token);
              await sql(cluster.nodes[turn % 2]!.port, 'SELECT 1');
              expect(inside.size).toBe(1);
              expect(lease.held).toBe(true);
              inside.delete(lease);
            });
        }),
      );
    } finally {
      await Promise.all(workers.map((locks) => locks.close()));
    }
    expect(tokens).toHaveLength(WORKERS * TURNS);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
  });

  test('of two that take a new name at once, on two nodes, one has it', async () => {
    const both = [locksOn(0), locksOn(1)];
    let granted = 0;
    try {
      for (let round = 0; round < ROUNDS; round += 1) {
        const leases = await Promise.all(both.map((locks) => locks.mutex(`new-${round}`).tryAcquire()));
        const held = leases.filter((lease) => lease?.held).length;
        expect(held, `round ${round}`).toBeLessThanOrEqual(1);
        granted += held;
        for (const lease of leases) await lease?.release();
      }
    } finally {
      await Promise.all(both.map((locks) => locks.close()));
    }
    expect(granted).toBeGreaterThan(ROUNDS / 2);
  });

  test('a holder that dies on one node is followed on the other, by a larger token, and knew it before', async () => {
    const dying = createPool(whereOf(cluster.nodes[0], user));
    const one = new Holdfast(mysql(dying, { strategy }), { ttl: '2s', namespace: user });
    await using two = locksOn(1, '2s');
    const lease = await one.mutex('inherited').acquire();
    await dying.promise().end();
    const next = await two.mutex('inherited').acquire({ timeout: '1m' });
    expect(lease.held).toBe(false);
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
    await one.close({ drain: 0 });
  });
});

describe.each(['for-update', 'get-lock'] as const)('%s', (strategy) => {
  test('is refused, because its locks are one node’s', async () => {
    for (const pool of pools) {
      await using locks = new Holdfast(mysql(pool, { strategy }));
      await expect(locks.mutex('job').acquire()).rejects.toThrow(ConfigError);
      await expect(locks.mutex('job').acquire()).rejects.toThrow(/wsrep_on = ON/);
    }
  });

  test('works on one node, with a warning, if told that all clients use it', async () => {
    const warnings: string[] = [];
    const hear = ({ message }: Error): void => void warnings.push(message);
    process.on('warning', hear);
    await using locks = new Holdfast(mysql(pools[0], { strategy, severalPrimaries: 'warn' }));
    await using other = new Holdfast(mysql(pools[0], { strategy, severalPrimaries: 'warn' }));
    const lease = await locks.mutex('job').acquire();
    expect(await other.mutex('job').tryAcquire()).toBeUndefined();
    await lease.release();
    const next = await other.mutex('job').acquire();
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
    process.removeListener('warning', hear);
    expect(warnings.filter((text) => text.includes('several primaries') && text.includes(strategy))).toHaveLength(1);
  });
});
