/** Before the first session it is proven that the locks of the server exclude: where they do not, two would hold in silence. */
import { connect, createServer, type Server as Listener } from 'node:net';
import { once } from 'node:events';
import { Client, Pool } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ConfigError, type Holdfast } from '../../../src/index.js';
import { startPgBouncer } from '../../servers/pgbouncer.js';
import { startPostgres } from '../../servers/postgres.js';
import type { Server } from '../../servers/server.js';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit();
const WITHIN_MS = 30_000;
const STRATEGIES = ['queue', 'advisory'] as const;
let second: Server;

beforeAll(async () => {
  second = await startPostgres();
});

afterAll(() => second.stop());

async function refusal(locks: Holdfast): Promise<unknown> {
  return locks
    .mutex('x')
    .acquire({ timeout: '20s' })
    .catch((error: unknown) => error);
}

describe.each(STRATEGIES)('%s', (strategy) => {
  test('connections that lead to two servers in turn are refused', async () => {
    // The tables are on both: what is missing is not to be what stops us.
    for (const { port } of [kit.server, second]) {
      const url = kit.url.replace(`:${kit.server.port}/`, `:${port}/`);
      await kit
        .locks(url, { strategy })
        .mutex('warm')
        .run(() => {});
    }
    const balancer = await startBalancer([kit.server.port, second.port]);
    const url = kit.url.replace(`:${kit.server.port}/`, `:${portOf(balancer)}/`);
    try {
      const refused = await refusal(kit.locks(url, { strategy }));
      expect(refused).toBeInstanceOf(ConfigError);
      expect(String(refused)).toContain('do not exclude');
    } finally {
      balancer.close();
    }
  });

  test('a pool that takes its connections from two servers in turn is refused', async () => {
    const pool = new TwoServers([kit.pool(), kit.pool({ port: second.port })]);
    const refused = await refusal(kit.locks(pool as unknown as Pool, { strategy }));
    expect(refused).toBeInstanceOf(ConfigError);
    expect(String(refused)).toContain('do not exclude');
  });

  test('any number may prove it at once, and they do not disturb each other', async () => {
    const instances = Array.from({ length: 8 }, () => kit.locks(kit.url, { strategy, ttl: '30s' }));
    await Promise.all(instances.map((locks) => locks.mutex('crowd').run(() => {})));
    // Also those that share a small pool.
    const pool = kit.pool({ max: 2 });
    const sharing = Array.from({ length: 4 }, () => kit.locks(pool, { strategy, ttl: '30s' }));
    await Promise.all(sharing.map((locks) => locks.mutex('crowd').run(() => {})));
  });

  test('it leaves no lock and no transaction behind', async () => {
    await kit.locks(kit.pool(), { strategy, ttl: '30s' }).ready();
    const rest = await kit.sql(
      `SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' OR state = 'idle in transaction'`,
    );
    expect(rest).toEqual([]);
  });
});

describe('locks that are stubs, as those of CockroachDB', () => {
  test.each([
    ['advisory', 'pg_try_advisory_lock(bigint)', 'boolean', 'RETURN true;'],
    ['queue', 'pg_advisory_xact_lock(bigint)', 'void', ''],
  ] as const)('%s is refused', async (strategy, routine, returns, body) => {
    const url = await database(`stub_${strategy}`, [
      `ALTER FUNCTION pg_catalog.${routine} RENAME TO the_real_one`,
      `CREATE FUNCTION pg_catalog.${routine} RETURNS ${returns} LANGUAGE plpgsql AS $$ BEGIN ${body} END $$`,
    ]);
    const refused = await refusal(kit.locks(url, { strategy }));
    expect(refused).toBeInstanceOf(ConfigError);
    expect(String(refused)).toContain('do not exclude');
  });

  test('a server that lacks the locks of transactions is refused', async () => {
    const url = await database('lacking', [
      `ALTER FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) RENAME TO gone`,
    ]);
    expect(await refusal(kit.locks(url))).toBeInstanceOf(ConfigError);
  });
});

describe('where there are no two connections', () => {
  const warnings: string[] = [];
  const hear = (warning: Error): void => void warnings.push(warning.message);

  beforeAll(() => void process.on('warning', hear));
  afterAll(() => void process.off('warning', hear));
  afterEach(() => void warnings.splice(0));

  test('advisory: a pool of one is a ConfigError that says so', async () => {
    const refused = await refusal(kit.locks(kit.pool({ max: 1 }), { strategy: 'advisory' }));
    expect(refused).toBeInstanceOf(ConfigError);
    expect(String(refused)).toContain('(max)');
  });

  test('queue: a pool of one works, and there is one warning', async () => {
    for (let times = 0; times < 2; times += 1) {
      const lease = await kit
        .locks(kit.pool({ max: 1 }), { namespace: `one-${times}` })
        .mutex('x')
        .acquire();
      expect(lease.held).toBe(true);
    }
    expect(await waitFor(() => warnings.length > 0, WITHIN_MS)).toBe(true);
    expect(warnings.filter((text) => text.includes('could not be proven'))).toHaveLength(1);
  });

  test('queue: where idle transactions are ended at once it is proven all the same', async () => {
    const pool = kit.pool({ options: '-c idle_in_transaction_session_timeout=1ms' });
    await kit
      .locks(pool, { ttl: '30s' })
      .mutex('x')
      .run(() => {});
    await new Promise((resolve) => setImmediate(resolve));
    expect(warnings.filter((text) => text.includes('could not be proven'))).toEqual([]);
  });

  test('queue: behind a pooler that has one connection to the server it works, with a warning', async () => {
    await using bouncer = await startPgBouncer(kit.server.port, 'default_pool_size = 1');
    const url = kit.url.replace(`:${kit.server.port}/`, `:${bouncer.port}/`);
    const [a, b] = [kit.locks(url, { ttl: '4s' }), kit.locks(url, { ttl: '4s' })];
    const lease = await a.mutex('narrow').acquire();
    expect(await b.mutex('narrow').tryAcquire()).toBeUndefined();
    expect(warnings.filter((text) => text.includes('could not be proven'))).toHaveLength(1);
    await lease.release();
    expect((await b.mutex('narrow').acquire()).token).toBeGreaterThan(lease.token);
    await Promise.all([a.close(), b.close()]);
  });
});

/** A database of its own, changed by a superuser. */
async function database(name: string, statements: readonly string[]): Promise<string> {
  await kit.sql(`CREATE DATABASE ${name}`);
  const url = kit.url.replace(/postgres$/, name);
  const client = new Client(url);
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
  return url;
}

/** Leads each new connection to the next of these ports. */
async function startBalancer(ports: readonly number[]): Promise<Listener> {
  let connections = 0;
  const balancer = createServer((client) => {
    const server = connect({ host: '127.0.0.1', port: ports[connections++ % ports.length]! });
    client.pipe(server).pipe(client);
    client.on('error', () => server.destroy());
    server.on('error', () => client.destroy());
  }).listen(0, '127.0.0.1');
  await once(balancer, 'listening');
  return balancer;
}

function portOf(listener: Listener): number {
  const address = listener.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** A pool as a proxy between shards is one: whoever asks gets a connection to the next server. */
class TwoServers {
  readonly Client = Client;
  readonly options: Pool['options'];
  readonly #pools: readonly Pool[];
  #asked = 0;

  constructor(pools: readonly Pool[]) {
    this.#pools = pools;
    this.options = pools[0]!.options;
  }

  get totalCount(): number {
    return this.#pools.reduce((sum, pool) => sum + pool.totalCount, 0);
  }

  get idleCount(): number {
    return this.#pools.reduce((sum, pool) => sum + pool.idleCount, 0);
  }

  connect(done: Parameters<Pool['connect']>[0]): void {
    this.#pools[this.#asked++ % this.#pools.length]!.connect(done);
  }
}
