/** A server that is down, hangs, or is another than the URL says: what is told, by when, and that no process lives on for it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../src/index.js';
import { freePort, LOOPBACK } from '../servers/ports.js';
import { startMemcached } from '../servers/memcached.js';
import { startPostgres } from '../servers/postgres.js';
import { startRedis } from '../servers/redis.js';
import type { Server } from '../servers/server.js';
import { failureOf } from './redis/faults-kit.js';

const TAIL = 'The engine could not be asked in time; the lock itself may be free.';

async function collect(locks: Holdfast): Promise<void> {
  for await (const _ of locks.inspect()) break;
}

describe.concurrent('a server that is down', () => {
  test.each([
    ['redis', 'open failed: connect ECONNREFUSED AT'],
    ['postgres', 'PostgreSQL: connect ECONNREFUSED AT'],
    ['memcached', 'memcached: connect ECONNREFUSED AT'],
    ['mysql', 'The database could not be reached: connect ECONNREFUSED AT'],
    ['etcd', 'etcd: connect ECONNREFUSED AT'],
    ['zookeeper', 'ZooKeeper: the connection was lost (connect ECONNREFUSED AT)'],
  ])('%s: acquire names the lock, the engine, its address and the first cause', async (scheme, cause) => {
    const at = `${LOOPBACK}:${await freePort()}`;
    await using locks = new Holdfast(`${scheme}://someone:secret@${at}${scheme === 'mysql' ? '/app' : ''}`);
    const error = (await failureOf(locks.mutex('job').acquire({ timeout: '5s' }))) as EngineError;
    expect(error).toBeInstanceOf(EngineError);
    expect(error.message.replaceAll(at, 'AT')).toBe(`"job" on ${scheme} at AT: ${cause}. ${TAIL}`);
    expect(error).toMatchObject({
      lock: 'job',
      engine: `${scheme} at ${at}`,
      retryable: true,
      retryAfterMs: undefined,
    });
    await locks.close({ drain: 0 });
  });

  test.each([
    ['redis', 'inspect failed: connect ECONNREFUSED AT'],
    ['etcd', 'etcd: connect ECONNREFUSED AT'],
    ['mysql', 'The database could not be reached: connect ECONNREFUSED AT.'],
    ['postgres', 'PostgreSQL: connect ECONNREFUSED AT'],
    ['zookeeper', 'ZooKeeper: the connection was lost (connect ECONNREFUSED AT)'],
  ])('%s: inspect names the engine, its address and the first cause', async (scheme, cause) => {
    const at = `${LOOPBACK}:${await freePort()}`;
    await using locks = new Holdfast(`${scheme}://someone:secret@${at}${scheme === 'mysql' ? '/app' : ''}`);
    const error = (await failureOf(collect(locks))) as EngineError;
    expect(error.message.replaceAll(at, 'AT')).toBe(`${scheme} at AT: ${cause}`);
  });

  test('etcd: evict and registers name it too', async () => {
    const at = `${LOOPBACK}:${await freePort()}`;
    await using locks = new Holdfast(`etcd://${at}`);
    const message = `etcd at ${at}: etcd: connect ECONNREFUSED ${at}`;
    expect(await failureOf(locks.evict('job', 'somebody'))).toMatchObject({ message });
    expect(await failureOf(locks.register('job').get())).toMatchObject({ message });
  });

  test.each([
    ['redis+cluster', ''],
    ['redis+sentinel', '/mymaster'],
  ])('%s: acquire and inspect name the first cause of every address', async (scheme, path) => {
    const ports = [await freePort(), await freePort()];
    const [one, other] = ports.map((port) => `${LOOPBACK}:${port}`);
    const cause = `connect ECONNREFUSED ${one}, connect ECONNREFUSED ${other}`;
    await using locks = new Holdfast(`${scheme}://${one},${other}${path}`);
    expect(await failureOf(locks.mutex('job').acquire({ timeout: '5s' }))).toMatchObject({
      message: `"job" on ${scheme} at ${one}, ${other}: open failed: ${cause}. ${TAIL}`,
    });
    expect(await failureOf(collect(locks))).toMatchObject({
      message: `${scheme} at ${one}, ${other}: inspect failed: ${cause}`,
    });
    await locks.close({ drain: 0 });
  });
});

describe('another server than the URL says', () => {
  let redis: Server;
  let postgres: Server;
  let memcached: Server;

  beforeAll(async () => {
    [redis, postgres, memcached] = await Promise.all([startRedis(), startPostgres(), startMemcached()]);
  });

  afterAll(() => Promise.all([redis.stop(), postgres.stop(), memcached.stop()]));

  test.concurrent.each([
    [
      'redis',
      'postgres',
      'The connection was closed before Redis had answered. If it stays so: is it Redis, with or without TLS as in the URL, that listens there?',
    ],
    [
      'redis',
      'memcached',
      'What answers there does not speak as Redis does. If it stays so: is it Redis that listens there?',
    ],
    [
      'postgres',
      'redis',
      'PostgreSQL: Connection terminated due to connection timeout. If it stays so: is it PostgreSQL that listens there?',
    ],
    [
      'memcached',
      'postgres',
      'memcached: the connection was closed. If it stays so: is it memcached that listens there?',
    ],
    ['etcd', 'redis', 'etcd: Protocol error. If it stays so: is it etcd that listens there?'],
    [
      'zookeeper',
      'redis',
      'ZooKeeper: the connection was lost (no answer within 1000 ms. If it stays so: is it ZooKeeper that listens there?).',
    ],
  ])('%s on the port of %s', async (scheme, other, cause) => {
    const { port } = { redis, postgres, memcached }[other]!;
    await using locks = new Holdfast(`${scheme}://${LOOPBACK}:${port}`);
    const error = await failureOf(locks.mutex('job').acquire({ timeout: '9s' }));
    expect((error as Error).message).toBe(`"job" on ${scheme} at ${LOOPBACK}:${port}: ${cause} ${TAIL}`);
    await locks.close({ drain: 0 });
  });
});

describe.concurrent('a server that hangs', () => {
  test.each<[string, () => Promise<Server>, (port: number) => string]>([
    ['redis', startRedis, (port) => `redis://${LOOPBACK}:${port}?epochGuard=false`],
    ['redis, plain', startRedis, (port) => `redis://${LOOPBACK}:${port}?strategy=plain`],
    ['memcached', startMemcached, (port) => `memcached://${LOOPBACK}:${port}`],
  ])('%s: ready asks it, and rejects in time', async (_, start, url) => {
    await using server = await start();
    await using locks = new Holdfast(url(server.port), { ttl: '60s' });
    await locks.ready();
    expect(locks.stats()).toMatchObject({ held: 0, waiting: 0, sessions: 1, guardEndsInMs: undefined });
    await server.pause();
    const startedAt = performance.now();
    expect(await failureOf(locks.ready({ timeout: '1s' }))).toBeInstanceOf(EngineError);
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    server.resume();
    await locks.ready();
  });
});
