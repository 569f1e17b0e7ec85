/**
 * The PostgreSQL engine against the least that a lock table can do (postgres-raw.ts), advisory locks by hand, and two
 * libraries, with the same client and the server's safe defaults: every commit is on disk.
 */
import { knexStore } from '@verrou/core/drivers/knex';
import { Verrou } from '@verrou/core';
import advisoryLock from 'advisory-lock';
import { Holdfast } from 'holdfast';
import { postgres } from 'holdfast/postgres';
import knex from 'knex';
import { Client, Pool } from 'pg';
import { startPostgres } from '../../test/servers/postgres.js';
import type { Server } from '../../test/servers/server.js';
import { useOurs } from '../memory/suite.js';
import { type Contest, repeat, together } from '../measure.js';
import { BareLocks, useAdvisory } from './raw.js';
import { Child } from '../child.js';

const SEQUENCE = 10;
const NAMES = 64;
const PROCESSES = 4;
const WAITERS_EACH = 8;
const TURNS = 1;
const HANDOFFS = 200;

export const peer = 'a lock table: one upsert, one delete, polling every 10 ms (or what the row says)';

let started: Promise<Server> | undefined;

function server(): Promise<Server> {
  started ??= startPostgres({ settings: { fsync: 'on', full_page_writes: 'on' } });
  return started;
}

function poolOf(port: number, type = Client): Pool {
  const pool = new Pool({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', max: 8, Client: type });
  pool.on('error', () => {});
  return pool;
}

export async function* contests(): AsyncIterable<Contest> {
  const { port } = await server();
  const [ourPool, barePool] = [poolOf(port), poolOf(port)];
  const queue = new Holdfast(postgres(ourPool), { ttl: '30s' });
  const advisory = new Holdfast(postgres(ourPool, { strategy: 'advisory' }), { ttl: '30s' });
  const bare = await BareLocks.open(barePool);
  await useOurs(queue.mutex('first'));
  await useOurs(advisory.mutex('first'));
  const ours = sequence(() => useOurs(queue.mutex('uncontended')));
  const bareCycle = sequence(() => bare.use('uncontended'));
  const contest = (name: string, against: () => Promise<unknown>, goal?: number): Contest => ({
    name,
    operations: SEQUENCE,
    ours,
    peer: against,
    ...(goal !== undefined && { goal }),
  });
  yield { ...contest('self-check: the peer against itself', bareCycle), ours: bareCycle };
  yield contest('queue, uncontended', bareCycle, 0.6);

  const client = await barePool.connect();
  const byHand = sequence(() => useAdvisory(client, 'uncontended'));
  yield contest('queue, uncontended, by advisory locks by hand (no commit, no token)', byHand);
  yield {
    ...contest('advisory, uncontended, by advisory locks by hand (no commit, no token)', byHand),
    ours: sequence(() => useOurs(advisory.mutex('uncontended'))),
  };
  client.release();

  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  // A CommonJS module, whose default is one level deeper.
  const library = advisoryLock.default(url)('uncontended');
  yield contest(
    'queue, uncontended, by the package advisory-lock',
    sequence(() => library.withLock(async () => {})),
  );

  const database = knex({ client: 'pg', connection: url });
  const verrou = new Verrou({
    default: 'pg',
    stores: { pg: { driver: knexStore({ connection: database, tableName: 'verrou' }) } },
  });
  yield contest(
    'queue, uncontended, by @verrou/core on knex',
    sequence(() => verrou.createLock('x').run(async () => {})),
  );
  await database.destroy();

  yield {
    name: `queue, ${NAMES} in flight on different names`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => useOurs(queue.mutex(`name:${at}`))),
    peer: () => together(NAMES, (at) => bare.use(`name:${at}`)),
  };
  await queue.close();
  await advisory.close();
  await ourPool.end();
  await barePool.end();
  yield* processes(port);
}

/** One after the other. */
function sequence(use: () => Promise<unknown>): () => Promise<void> {
  return () => repeat(SEQUENCE, use);
}

async function* processes(port: number): AsyncIterable<Contest> {
  const start = (side: string): Promise<Child[]> =>
    Promise.all(
      Array.from({ length: PROCESSES }, () =>
        Child.start('postgres/contender.ts', { port, side, waiters: WAITERS_EACH }),
      ),
    );
  const [ours, bares, hands] = [await start('queue'), await start('bare'), await start('by hand')];
  const turn = (children: readonly Child[]) => (): Promise<unknown> =>
    Promise.all(children.map((child) => child.ask(`${TURNS}`)));
  const name = `queue, ${PROCESSES} processes × ${WAITERS_EACH} waiters on one lock`;
  const operations = PROCESSES * WAITERS_EACH * TURNS;
  yield { name, operations, ours: turn(ours), peer: turn(bares) };
  yield { name: `${name}, by advisory locks by hand`, operations, ours: turn(ours), peer: turn(hands) };
  await Promise.all([...ours, ...bares, ...hands].map((child) => child.end()));
}

// --- figures that are no ratios of speeds -----------------------------------------------------------------------------

export async function* facts(): AsyncIterable<string> {
  const running = await server();
  for (const strategy of ['queue', 'advisory'] as const) yield await roundTrips(running.port, strategy);
  yield await handOff(running.port);
  await running.stop();
}

let asked = 0;

/** Counts what `pg` is asked to send. */
class CountingClient extends Client {}
Object.defineProperty(CountingClient.prototype, 'query', {
  value(this: Client, ...args: unknown[]): unknown {
    asked += 1;
    return Reflect.apply(Reflect.get(Client.prototype, 'query') as (...args: unknown[]) => unknown, this, args);
  },
});

async function roundTrips(port: number, strategy: 'queue' | 'advisory'): Promise<string> {
  const pool = poolOf(port, CountingClient);
  const locks = new Holdfast(postgres(pool, { strategy }), { ttl: '600s' });
  // By then the listener has proved that it hears.
  await repeat(20, () => useOurs(locks.mutex('counted')));
  const before = asked;
  const turns = 100;
  await repeat(turns, () => useOurs(locks.mutex('counted')));
  const each = (asked - before) / turns;
  await locks.close();
  await pool.end();
  return `${strategy}: ${each.toFixed(2)} round trips for acquire and release (goal ≤ 2: ${each <= 2 ? 'met' : 'missed'})`;
}

/** From the release in one process to the lease in the other, by what a bare NOTIFY between the same two takes. */
async function handOff(port: number): Promise<string> {
  const [a, b] = await Promise.all([
    Child.start('postgres/peer.ts', { port, inbox: 'a', outbox: 'b' }),
    Child.start('postgres/peer.ts', { port, inbox: 'b', outbox: 'a' }),
  ]);
  const ours: number[] = [];
  const raw: number[] = [];
  await a.ask('enter');
  for (let round = 0; round < HANDOFFS; round += 1) {
    const [holder, next] = round % 2 === 0 ? [a, b] : [b, a];
    await next.ask('enter');
    ours.push(await microseconds(holder.ask('release'), () => next.ask('granted')));
    raw.push(await microseconds(holder.ask('publish'), () => next.ask('heard')));
  }
  await Promise.all([a.end(), b.end()]);
  const ratio = median(ours) / median(raw);
  const figure = `${median(ours).toFixed(0)} µs, a bare NOTIFY ${median(raw).toFixed(0)} µs: ${ratio.toFixed(2)} ×`;
  return `hand-off between two processes, p50: ${figure} (goal ≤ 3 ×: ${ratio <= 3 ? 'met' : 'missed'})`;
}

/** Between two moments that two processes tell. */
async function microseconds(from: Promise<unknown>, to: () => Promise<unknown>): Promise<number> {
  const sentAt = BigInt(String(await from));
  return Number(BigInt(String(await to())) - sentAt) / 1_000;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
