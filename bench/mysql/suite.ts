/**
 * The MySQL engine on MariaDB, against three peers on the same server, client and durability (every commit is synced):
 * the bare cycle, which is one upsert and one delete; GET_LOCK by hand; and the SQL store of @verrou/core, by knex. None
 * of them has order, renewal or tokens; the bare cycle does not even exclude anybody.
 */
import { Verrou } from '@verrou/core';
import { knexStore } from '@verrou/core/drivers/knex';
import knex from 'knex';
import { Holdfast } from 'holdfast';
import { mysql } from 'holdfast/mysql';
import { createPool, type Pool } from 'mysql2/promise';
import { sql, startMariadb } from '../../test/servers/mariadb.js';
import type { Server } from '../../test/servers/server.js';
import { type Contest, repeat, together } from '../measure.js';
import { useOurs } from '../memory/suite.js';
import { Child } from '../child.js';

const SEQUENCE = 5;
const PROCESSES = 4;
const WAITERS_EACH = 8;
const TURNS = 2;
const HANDOFFS = 60;
const STRATEGIES = ['queue', 'row', 'version', 'for-update', 'get-lock'] as const;

export const peer = 'the bare cycle, unless a row says otherwise';

let started: Promise<Server> | undefined;

function server(): Promise<Server> {
  started ??= startMariadb({ sync: true });
  return started;
}

function poolOn(port: number): Pool {
  return createPool({ host: '127.0.0.1', port, user: 'root', database: 'test', connectionLimit: 10 });
}

export async function* contests(): AsyncIterable<Contest> {
  const { port } = await server();
  const pool = poolOn(port);
  await pool.query('CREATE TABLE bare (name VARBINARY(200) PRIMARY KEY, owner VARBINARY(64), until BIGINT)');
  const bare = (): Promise<void> => repeat(SEQUENCE, () => bareCycle(pool));
  yield { name: 'self-check: the bare cycle against itself', operations: SEQUENCE, ours: bare, peer: bare };
  for (const strategy of STRATEGIES) yield* uncontended(port, strategy, bare);
  const queue = new Holdfast(mysql(pool));
  const lock = queue.mutex('peers');
  const ours = (): Promise<void> => repeat(SEQUENCE, () => useOurs(lock));
  const byHand = (): Promise<void> => repeat(SEQUENCE, () => getLockByHand(pool));
  yield { name: 'queue, uncontended, by GET_LOCK by hand', operations: SEQUENCE, ours, peer: byHand };
  yield* againstVerrou(port, ours);
  await queue.close();
  await pool.end();
  yield* processes(port);
}

async function* uncontended(
  port: number,
  strategy: (typeof STRATEGIES)[number],
  bare: () => Promise<void>,
): AsyncIterable<Contest> {
  const pool = poolOn(port);
  const locks = new Holdfast(mysql(pool, { strategy }));
  const lock = locks.mutex('uncontended');
  await useOurs(lock);
  yield {
    name: `${strategy}: acquire + release, uncontended`,
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(lock)),
    peer: bare,
    ...(strategy === 'queue' && { goal: 0.6 }),
  };
  await locks.close();
  await pool.end();
}

async function* againstVerrou(port: number, ours: () => Promise<void>): AsyncIterable<Contest> {
  const connection = { host: '127.0.0.1', port, user: 'root', database: 'test' };
  const database = knex({ client: 'mysql2', connection });
  const verrou = new Verrou({ default: 'sql', stores: { sql: { driver: knexStore({ connection: database }) } } });
  const use = async (): Promise<void> => {
    const lock = verrou.createLock('verrou', '10s');
    await lock.acquire();
    await lock.release();
  };
  await use();
  yield {
    name: 'queue, uncontended, by @verrou/core on knex',
    operations: SEQUENCE,
    ours,
    peer: () => repeat(SEQUENCE, use),
  };
  await database.destroy();
}

async function* processes(port: number): AsyncIterable<Contest> {
  const start = (byHand: boolean): Promise<Child[]> =>
    Promise.all(
      Array.from({ length: PROCESSES }, () =>
        Child.start('mysql/contender.ts', { port, byHand, waiters: WAITERS_EACH }),
      ),
    );
  const [ours, peers] = [await start(false), await start(true)];
  yield {
    name: `queue, ${PROCESSES} processes × ${WAITERS_EACH} waiters on one lock, by GET_LOCK by hand`,
    operations: PROCESSES * WAITERS_EACH * TURNS,
    ours: () => Promise.all(ours.map((child) => child.ask(`${TURNS}`))),
    peer: () => Promise.all(peers.map((child) => child.ask(`${TURNS}`))),
  };
  await Promise.all([...ours, ...peers].map((child) => child.end()));
}

async function bareCycle(pool: Pool): Promise<void> {
  await pool.query("INSERT INTO bare VALUES ('job', 'me', 1) ON DUPLICATE KEY UPDATE owner = 'me', until = 2");
  await pool.query("DELETE FROM bare WHERE name = 'job' AND owner = 'me'");
}

export async function getLockByHand(pool: Pool): Promise<void> {
  const connection = await pool.getConnection();
  await connection.query("SELECT GET_LOCK('by-hand', 60)");
  await connection.query("DO RELEASE_LOCK('by-hand')");
  connection.release();
}

// --- figures that are no ratios of speeds -----------------------------------------------------------------------------

export async function* facts(): AsyncIterable<string> {
  const { port } = await server();
  for (const strategy of STRATEGIES) yield await roundTrips(port, strategy);
  for (const strategy of STRATEGIES) yield await handOff(port, strategy);
  yield await questionsOfWaiters(port);
  await (await server()).stop();
}

async function roundTrips(port: number, strategy: (typeof STRATEGIES)[number]): Promise<string> {
  const pool = poolOn(port);
  // No beat comes in between.
  const locks = new Holdfast(mysql(pool, { strategy }), { ttl: '10m' });
  const lock = locks.mutex('counted');
  await useOurs(lock);
  const times = 50;
  const asked = await counted(port, () => repeat(times, () => useOurs(lock)));
  await locks.close();
  await pool.end();
  const each = asked / times;
  const goal = strategy === 'queue' ? ` (goal ≤ 2: ${each < 2.05 ? 'met' : 'missed'})` : '';
  return `${strategy}: round trips of an acquire and a release: ${each.toFixed(2)}${goal}`;
}

/** From the release in one instance to the lease in another. */
async function handOff(port: number, strategy: (typeof STRATEGIES)[number]): Promise<string> {
  const pools = [poolOn(port), poolOn(port)];
  const instances = pools.map((pool) => new Holdfast(mysql(pool, { strategy })));
  const times: number[] = [];
  let lease = await instances[0]!.mutex('handed').acquire();
  for (let round = 1; round <= HANDOFFS; round += 1) {
    const next = instances[round % 2]!.mutex('handed').acquire();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const at = performance.now();
    const released = lease.release();
    lease = await next;
    times.push(performance.now() - at);
    await released;
  }
  await lease.release();
  await Promise.all(instances.map((locks) => locks.close()));
  await Promise.all(pools.map((pool) => pool.end()));
  times.sort((a, b) => a - b);
  const at = (share: number): string => times[Math.floor(share * (times.length - 1))]!.toFixed(1);
  return `${strategy}: hand-off between two instances: p50 ${at(0.5)} ms, p95 ${at(0.95)} ms`;
}

async function questionsOfWaiters(port: number): Promise<string> {
  const figures: string[] = [];
  const pools = [poolOn(port), poolOn(port)];
  const [holder, waiter] = pools.map((pool) => new Holdfast(mysql(pool), { ttl: '10m', cohort: false }));
  for (const many of [1, 100]) {
    const leases = await Promise.all(
      Array.from({ length: many }, (_, at) => holder!.mutex(`asked-${many}-${at}`).acquire()),
    );
    const end = new AbortController();
    const waits = leases.map(({ name }) =>
      waiter!
        .mutex(name)
        .acquire({ signal: end.signal })
        .catch(() => {}),
    );
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const asked = await counted(port, () => new Promise((resolve) => setTimeout(resolve, 3_000)));
    figures.push(`${many} waiting: ${(asked / 3).toFixed(1)}/s`);
    end.abort();
    await Promise.all(waits);
    await together(many, (at) => leases[at]!.release());
  }
  await Promise.all([holder!.close(), waiter!.close()]);
  await Promise.all(pools.map((pool) => pool.end()));
  return `questions of an instance whose claims wait: ${figures.join(', ')}`;
}

/** What clients asked meanwhile; what a procedure does inside is not counted. */
async function counted(port: number, run: () => Promise<unknown>): Promise<number> {
  const questions = async (): Promise<number> =>
    Number((await sql(port, "SHOW GLOBAL STATUS LIKE 'Questions'"))[0]!['Value']);
  const before = await questions();
  await run();
  // The second look itself is a question, too.
  return (await questions()) - before - 1;
}
