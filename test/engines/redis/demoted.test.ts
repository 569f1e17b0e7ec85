/** A switch-over behind a stable address: the old primary lives on as a replica, and keeps the connections that it has. */
import { Redis } from 'ioredis';
import { Redis as Valkey } from 'iovalkey';
import { createClient } from '@redis/client';
import { afterEach, describe, expect, test } from 'vitest';
import { redis } from '../../../src/engines/redis/index.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import { failureOf, queued, until, urlOf } from './faults-kit.js';

/** A session that has not beaten yet is not replaced in a hurry: with a short ttl nobody waits for that. */
const TTL = '3s';
const PATIENCE = { timeout: '60s' } as const;

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** Clients with their default options. */
const INSTANCES: Readonly<Record<string, (port: number) => Promise<Holdfast>>> = {
  'by URL': async (port) => new Holdfast(urlOf(port), { ttl: TTL }),
  'on a client of ioredis': async (port) => {
    const client = new Redis({ host: LOOPBACK, port });
    client.on('error', () => {});
    closing.push(() => client.disconnect());
    return new Holdfast(redis(client, { epochGuard: false }), { ttl: TTL });
  },
  'on a client of iovalkey': async (port) => {
    const client = new Valkey({ host: LOOPBACK, port });
    client.on('error', () => {});
    closing.push(() => client.disconnect());
    return new Holdfast(redis(client, { epochGuard: false }), { ttl: TTL });
  },
  'on a client of node-redis': async (port) => {
    const client = createClient({ socket: { host: LOOPBACK, port } });
    client.on('error', () => {});
    await client.connect();
    closing.push(() => client.destroy());
    return new Holdfast(redis(client, { epochGuard: false }), { ttl: TTL });
  },
};

describe.each(Object.entries(INSTANCES))('an instance %s', (_how, instanceOn) => {
  test('leaves a server that was demoted, with its subscriber, and goes on at the successor', async () => {
    await using old = await startRedis();
    await using successor = await startRedis();
    await using proxy = await FaultProxy.start(old.port);
    const [one, other] = [await instanceOn(proxy.port), await instanceOn(proxy.port)];
    closing.push(...[one, other].map((locks) => () => locks.close({ drain: 0 })));
    const before = await one.mutex('job').acquire();
    await before.release();
    await other.mutex('job').run(() => {});
    expect(await subscribers(old.port)).toBe(2);

    proxy.retarget(successor.port);
    await command(old.port, 'REPLICAOF', LOOPBACK, `${successor.port}`);

    const lease = await one.mutex('job').acquire(PATIENCE);
    expect(lease.token).toBeGreaterThan(before.token);
    const waiting = other.mutex('job').acquire(PATIENCE);
    await queued(one.mutex('job'), 1);
    await until('no subscriber is left behind', async () => (await subscribers(old.port)) === 0);
    expect(await lease.release()).toBe(true);
    await (await waiting).release();
    expect(await subscribers(successor.port)).toBe(2);
  });
});

test.each(['plain', 'hash'])('%s: the successor is found, and whoever waits is woken there', async (strategy) => {
  await using old = await startRedis();
  await using successor = await startRedis();
  await using proxy = await FaultProxy.start(old.port);
  const [one, other] = [1, 2].map(() => {
    const locks = new Holdfast(`${urlOf(proxy.port)}&strategy=${strategy}`, { ttl: TTL });
    closing.push(() => locks.close({ drain: 0 }));
    return locks;
  }) as [Holdfast, Holdfast];
  const before = await one.mutex('job').acquire();
  const wakes = other.mutex('job').acquire();
  await until('it waits', async () => (await subscribers(old.port)) > 0);
  await before.release();
  await (await wakes).release();

  proxy.retarget(successor.port);
  await command(old.port, 'REPLICAOF', LOOPBACK, `${successor.port}`);

  const lease = await one.mutex('job').acquire(PATIENCE);
  const waiting = other.mutex('job').acquire(PATIENCE);
  await until('it waits at the successor', async () => (await subscribers(successor.port)) > 0);
  await until('nobody listens to the old one', async () => (await subscribers(old.port)) === 0);
  expect(await lease.release()).toBe(true);
  expect((await waiting).token).toBeGreaterThan(lease.token);
});

test('the error of a server that was demoted says so first', async () => {
  await using server = await startRedis();
  await using locks = new Holdfast(urlOf(server.port), { ttl: '3s' });
  await locks.mutex('job').run(() => {});
  // Nobody is there: it will never be told what it lacks.
  await command(server.port, 'REPLICAOF', LOOPBACK, '1');
  for (const work of [locks.mutex('job').tryAcquire(), locks.mutex('job').acquire({ timeout: '1s' })]) {
    const failure = await failureOf(work);
    expect(failure).toBeInstanceOf(EngineError);
    expect((failure as EngineError).message).toMatch(
      /^"job" on redis at \S+: This Redis server is a read-only replica now\./,
    );
    expect((failure as EngineError).retryable).toBe(true);
  }
  await command(server.port, 'REPLICAOF', 'NO', 'ONE');
  await locks.mutex('job').run(() => {});
});

async function subscribers(port: number): Promise<number> {
  const list = String(await command(port, 'CLIENT', 'LIST', 'TYPE', 'pubsub'));
  return list.split('\n').filter((line) => line.trim() !== '').length;
}
