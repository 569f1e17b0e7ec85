/** `for-update` and `get-lock` rest on locks of one server: whether they do is proven before the first lock. */
import type { Pool } from 'mysql2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ConfigError, Holdfast } from '../../../src/index.js';
import { mysql, type MysqlOptions } from '../../../src/engines/mysql/index.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { Stage } from './kit.js';
import { answered } from './overheard.js';

let servers: [Server, Server];

beforeAll(async () => {
  servers = await Promise.all([startMariadb(), startMariadb()]);
  for (const { port } of servers) {
    await using stage = new Stage(() => port);
    await stage.byUrl('').ready();
  }
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

/** Connections go to the one and the other in turn. */
function spread(pools: readonly Pool[]): object {
  let turn = 0;
  return {
    promise: () => undefined,
    config: { connectionLimit: 10 },
    getConnection: (done: Parameters<Pool['getConnection']>[0]) => pools[turn++ % pools.length]!.getConnection(done),
  };
}

async function failure(pool: object, options: MysqlOptions): Promise<unknown> {
  await using locks = new Holdfast(mysql(pool, options), { ttl: '10s' });
  return await locks
    .mutex('job')
    .run({ timeout: '8s' }, ({ held }) => held)
    .catch((error: unknown) => error);
}

describe.each(['for-update', 'get-lock'] as const)('%s', (strategy) => {
  test('a proxy that spreads connections over two servers is refused', async () => {
    await using stage = new Stage(() => servers[0].port);
    const pools = servers.map(({ port }) => stage.pool({ port }));
    const error = await failure(spread(pools), { strategy });
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).toMatch(/two connections had the same one at once/);
  });

  test('a pool that can’t give two connections is refused', async () => {
    await using stage = new Stage(() => servers[0].port);
    const error = await failure(stage.pool({ connectionLimit: 1 }), { strategy });
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).toMatch(/connectionLimit 1/);
  });

  test('many who begin at once on one pool of two connections do not stand in each other’s way', async () => {
    await using stage = new Stage(() => servers[0].port);
    const pool = stage.pool({ connectionLimit: 2 });
    const all = Array.from({ length: 6 }, () => stage.locks({ strategy }, { ttl: '30s' }, pool));
    await Promise.all(all.map((locks) => locks.ready()));
  });

  test('it leaves nothing behind', async () => {
    await using stage = new Stage(() => servers[0].port);
    await stage
      .byUrl(`strategy=${strategy}&connections=1`)
      .mutex('job')
      .run(() => {});
    expect(await sql(servers[0].port, "SELECT * FROM holdfast_latch WHERE namespace = ''")).toEqual([]);
    const [row] = await sql(
      servers[0].port,
      "SELECT COUNT(*) AS n FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    );
    expect(Number(row!['n'])).toBe(0);
  });

  test.each([
    ['wsrep_on', 'ON'],
    ['group_replication_single_primary_mode', 'OFF'],
  ])(
    'a server that is one of several primaries (%s = %s) is refused, or told, as was asked for',
    async (name, value) => {
      await using stage = new Stage(() => servers[0].port);
      // A cluster is too much for a test that always runs (test/matrix/galera.test.ts has one): a server that says it is one.
      const pool = answered(stage.pool(), (statement) =>
        statement.includes('wsrep_on') ? [[name, value]] : undefined,
      );
      const error = await failure(pool, { strategy });
      expect(error).toBeInstanceOf(ConfigError);
      expect((error as Error).message).toContain(`${name} = ${value}`);
      const warnings: string[] = [];
      const hear = ({ message }: Error): void => void warnings.push(message);
      process.on('warning', hear);
      for (let use = 0; use < 2; use += 1)
        expect(await failure(pool, { strategy, severalPrimaries: 'warn' })).toBe(true);
      await new Promise((resolve) => setImmediate(resolve));
      process.removeListener('warning', hear);
      expect(warnings.filter((text) => text.includes(`${name} = ${value}`) && text.includes(strategy))).toHaveLength(1);
    },
  );
});

test('queue, row and version do not ask how many primaries there are', async () => {
  await using stage = new Stage(() => servers[0].port);
  const pool = answered(stage.pool(), (statement) =>
    statement.includes('wsrep_on') ? [['wsrep_on', 'ON']] : undefined,
  );
  for (const strategy of ['queue', 'row', 'version'] as const) expect(await failure(pool, { strategy })).toBe(true);
});

test('severalPrimaries is one of two words', () => {
  expect(() => new Holdfast('mysql://localhost/test?severalPrimaries=yes')).toThrow(/'refuse' or 'warn'/);
  expect(() => mysql('mysql://localhost/test', { severalPrimaries: 'yes' as never })).toThrow(ConfigError);
});
