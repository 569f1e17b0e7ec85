/** What somebody reads who has just made a mistake: the whole of it. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { hostname } from 'node:os';
import { createClient } from '@redis/client';
import { Redis } from 'ioredis';
import mysql from 'mysql2';
import promisedMysql from 'mysql2/promise';
import { Client, Pool } from 'pg';
import { describe, expect, test } from 'vitest';
import { etcd } from '../../src/engines/etcd/index.js';
import { mysql as mysqlEngine } from '../../src/engines/mysql/index.js';
import { postgres } from '../../src/engines/postgres/index.js';
import { redis, redlock } from '../../src/engines/redis/index.js';
import { zookeeper } from '../../src/engines/zookeeper/index.js';
import { Holdfast as HoldfastOver } from '../../src/core.js';
import { ConfigError, Holdfast } from '../../src/index.js';

/** What a caller without types may pass. */
const untyped = (value: unknown): never => value as never;

/** The message of the ConfigError that a call throws or rejects with. */
async function refusal(call: () => unknown): Promise<string> {
  try {
    await call();
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message;
  }
  throw new Error('It was not refused.');
}

describe('an option that does not exist', () => {
  const lock = 'timeout, signal, permits, maxHold, label, within';
  test.each<[string, (locks: Holdfast) => unknown, string]>([
    [
      'of the constructor',
      () => new Holdfast('memory:', untyped({ ttlMs: 5_000 })),
      'Holdfast has no option "ttlMs". Did you mean "ttl"? Known: ttl, label, namespace, cohort, reentrant, maxWaiters, clock.',
    ],
    [
      'of acquire',
      (locks) => locks.mutex('a').acquire(untyped({ waitTimeout: 5 })),
      `acquire has no option "waitTimeout". Did you mean "timeout"? Known: ${lock}.`,
    ],
    [
      'of acquire, by a letter',
      (locks) => locks.mutex('a').acquire(untyped({ timout: 5 })),
      `acquire has no option "timout". Did you mean "timeout"? Known: ${lock}.`,
    ],
    [
      'of acquire, that nothing is like',
      (locks) => locks.mutex('a').acquire(untyped({ retryCount: 5 })),
      `acquire has no option "retryCount". Known: ${lock}.`,
    ],
    [
      'of acquire, as other libraries have it',
      (locks) => locks.mutex('a').acquire(untyped({ ttl: '5s' })),
      'acquire has no option "ttl". The ttl is that of the Holdfast, new Holdfast(url, { ttl }), and a lease is renewed for as long as it is held. To end it after a time, use maxHold.',
    ],
    [
      'of tryAcquire',
      (locks) => locks.mutex('a').tryAcquire(untyped({ timeout: '5s' })),
      'tryAcquire has no option "timeout". It never waits: use acquire({ timeout }).',
    ],
    [
      'of run',
      (locks) => locks.mutex('a').run(untyped({ maxhold: '5s' }), () => {}),
      `acquire has no option "maxhold". Did you mean "maxHold"? Known: ${lock}.`,
    ],
    [
      'of all',
      (locks) => locks.all([locks.mutex('a')]).acquire(untyped({ time: '5s' })),
      `acquire has no option "time". Did you mean "timeout"? Known: ${lock}.`,
    ],
    [
      'of once',
      (locks) => locks.once('a', untyped({ atleast: '5s' }), () => {}),
      'once has no option "atleast". Did you mean "atLeast"? Known: atLeast, atMost, onError, label.',
    ],
    [
      'of an election',
      (locks) => locks.election('a').campaign(untyped({ val: 'x' })),
      'An election has no option "val". Did you mean "value"? Known: value, signal, timeout, label.',
    ],
    [
      'of a lead',
      (locks) => locks.election('a').lead(untyped({ timeOut: 5 }), () => {}),
      'An election has no option "timeOut". Did you mean "timeout"? Known: value, signal, timeout, label.',
    ],
    [
      'of observe',
      async (locks) => {
        for await (const _ of locks.election('a').observe(untyped({ abort: 1 }))) break;
      },
      'observe has no option "abort". Known: signal.',
    ],
    [
      'of close',
      (locks) => locks.close(untyped({ drian: 5 })),
      'close has no option "drian". Did you mean "drain"? Known: drain.',
    ],
    [
      'of ready',
      (locks) => locks.ready(untyped({ timeoutMs: 5 })),
      'ready has no option "timeoutMs". Did you mean "timeout"? Known: timeout.',
    ],
    [
      'of inspect',
      (locks) => locks.inspect(untyped({ names: 'a' })),
      'inspect has no option "names". Did you mean "name"? Known: name, prefix.',
    ],
    [
      'of redis()',
      () => redis('redis://localhost', untyped({ epochguard: false })),
      'redis() has no option "epochguard". Did you mean "epochGuard"? Known: strategy, key, epochGuard.',
    ],
    [
      'of redlock()',
      () => redlock(['redis://a', 'redis://b', 'redis://c'], untyped({ keys: 1 })),
      'redlock() has no option "keys". Did you mean "key"? Known: key, epochGuard.',
    ],
    [
      'of postgres()',
      () => postgres('postgres://localhost', untyped({ schemma: 'x' })),
      'postgres() has no option "schemma". Did you mean "schema"? Known: strategy, migrate, schema, tablePrefix.',
    ],
    [
      'of mysql()',
      () => mysqlEngine('mysql://localhost/app', untyped({ prefix: 'x' })),
      'mysql() has no option "prefix". Did you mean "tablePrefix"? Known: strategy, tablePrefix, migrate, connections, severalPrimaries.',
    ],
    [
      'of etcd()',
      () => etcd('etcd://localhost', untyped({ pasword: 'x' })),
      'etcd() has no option "pasword". Did you mean "password"? Known: user, password, tls, key.',
    ],
    [
      'of zookeeper()',
      () => zookeeper('zookeeper://localhost', untyped({ users: 'x' })),
      'zookeeper() has no option "users". Did you mean "user"? Known: user, password, tls, key.',
    ],
    [
      'that are none',
      (locks) => locks.mutex('a').acquire(untyped(5)),
      'acquire takes its options as an object; got 5.',
    ],
    [
      'that are null',
      (locks) => locks.mutex('a').acquire(untyped(null)),
      'acquire takes its options as an object; got null.',
    ],
  ])('%s is refused, with the one that was meant', async (_, call, message) => {
    await using locks = new Holdfast('memory:messages');
    expect(await refusal(() => call(locks))).toBe(message);
  });
});

describe('where an engine is wanted', () => {
  const needs = `Holdfast needs an engine: a URL like 'memory:', or one like memory() from 'holdfast/memory'; got `;
  const quiet = { lazyConnect: true } as const;
  const pool = { host: '127.0.0.1', port: 1 };
  test.each<[string, () => unknown, string]>([
    [
      'a client of ioredis',
      () => new Redis(quiet),
      "a client of ioredis. Write: new Holdfast(redis(client)), with import { redis } from 'holdfast/redis'.",
    ],
    [
      'a client of node-redis',
      () => createClient(),
      "a client of node-redis. Write: new Holdfast(redis(client)), with import { redis } from 'holdfast/redis'.",
    ],
    [
      'a pool of pg',
      () => new Pool(pool),
      "a pool of pg. Write: new Holdfast(postgres(pool)), with import { postgres } from 'holdfast/postgres'.",
    ],
    [
      'a client of pg',
      () => new Client(pool),
      "a single client of pg, and locks need a pool. Write: new Holdfast(postgres(new pg.Pool({ … }))), with import { postgres } from 'holdfast/postgres'.",
    ],
    [
      'a pool of mysql2',
      () => mysql.createPool(pool),
      "a pool of mysql2. Write: new Holdfast(mysql(pool)), with import { mysql } from 'holdfast/mysql'.",
    ],
    [
      'a pool of mysql2/promise',
      () => promisedMysql.createPool(pool),
      "a pool of mysql2. Write: new Holdfast(mysql(pool)), with import { mysql } from 'holdfast/mysql'.",
    ],
    ['an object', () => ({}), 'an object.'],
    ['nothing', () => undefined, 'undefined.'],
  ])('%s gets the line to write', async (_, make, message) => {
    expect(await refusal(() => new Holdfast(untyped(make())))).toBe(needs + message);
  });

  test('holdfast/core gets none by URL, and does not repeat it', async () => {
    expect(await refusal(() => new HoldfastOver(untyped('redis://me:secret@localhost')))).toBe(
      "holdfast/core has no URLs: import { Holdfast } from 'holdfast', or hand in an engine, like memory() from 'holdfast/memory'.",
    );
  });

  const known =
    'Known: memory:, sqlite:, redis:, rediss:, redis+sentinel:, rediss+sentinel:, redis+cluster:, rediss+cluster:, redlock:, postgres:, postgresql:, mysql:, mariadb:, memcached:, etcd:, etcds:, zookeeper:, zookeepers:.';
  test.each([
    ['localhost:6379', `There is no engine for "localhost:". Did you mean 'redis://localhost:6379'? ${known}`],
    ['db:5432/app', `There is no engine for "db:". Did you mean 'postgres://db:5432'? ${known}`],
    ['reddis://h', `There is no engine for "reddis:". Did you mean 'redis:'? ${known}`],
    ['mongodb://h', `There is no engine for "mongodb:". ${known}`],
    [
      '127.0.0.1:6379',
      "An engine's URL begins with a scheme, like 'memory:' or 'redis://localhost:6379'. Did you mean 'redis://127.0.0.1:6379'?",
    ],
  ])('%s is refused, with what was meant', async (url, message) => {
    expect(await refusal(() => new Holdfast(url))).toBe(message);
  });
});

describe('arguments in the wrong order, or none', () => {
  test.each<[string, (locks: Holdfast) => unknown, string]>([
    [
      'run(work, options)',
      (locks) =>
        locks.mutex('a').run(
          untyped(() => {}),
          untyped({ timeout: 5 }),
        ),
      "run takes its options first: run({ timeout: '2s' }, work); got the function first.",
    ],
    [
      'all().run(work, options)',
      (locks) =>
        locks.all([locks.mutex('a')]).run(
          untyped(() => {}),
          untyped({ timeout: 5 }),
        ),
      "run takes its options first: run({ timeout: '2s' }, work); got the function first.",
    ],
    [
      'lead(work, options)',
      (locks) =>
        locks.election('a').lead(
          untyped(() => {}),
          untyped({ timeout: 5 }),
        ),
      "lead takes its options first: lead({ timeout: '2s' }, work); got the function first.",
    ],
    ['run()', (locks) => locks.mutex('a').run(untyped({})), 'run needs a function to run; got an object.'],
    [
      'once(name, work)',
      (locks) =>
        locks.once(
          'a',
          untyped(() => {}),
          untyped(undefined),
        ),
      'once needs a function to run, behind its options: once(name, {}, work); got undefined.',
    ],
    ['all([])', (locks) => locks.all([]), 'all() needs an array of locks; got an empty array.'],
  ])('%s', async (_, call, message) => {
    await using locks = new Holdfast('memory:messages');
    expect(await refusal(() => call(locks))).toBe(message);
  });
});

describe('a value that is wrong', () => {
  const duration = "must be a duration from 0 to 366d, in milliseconds or like '250ms', '10s', '5m', '1h', '7d'; got";
  test.each<[string, (locks: Holdfast) => unknown, string]>([
    ["timeout: '2 s'", (locks) => locks.mutex('a').acquire(untyped({ timeout: '2 s' })), `timeout ${duration} "2 s".`],
    ['timeout: -1', (locks) => locks.mutex('a').acquire({ timeout: -1 }), `timeout ${duration} -1.`],
    ["atLeast: '400d'", (locks) => locks.once('a', { atLeast: '400d' }, () => {}), `atLeast ${duration} "400d".`],
    [
      'ttl: 100',
      () => new Holdfast('memory:', { ttl: 100 }),
      'ttl must be from 1000 ms to 10 min with this engine; got 100 ms.',
    ],
    ['a name that is none', (locks) => locks.mutex(untyped(42)), 'A lock name must be a string; got 42.'],
    ['an empty name', (locks) => locks.mutex(''), 'A lock name must have 1 to 512 bytes in UTF-8; got 0.'],
    ['a long name', (locks) => locks.mutex('x'.repeat(600)), 'A lock name must have 1 to 512 bytes in UTF-8; got 600.'],
    [
      'a name with a line break',
      (locks) => locks.mutex('a\nb'),
      'A lock name must not contain control characters; got "a\\nb".',
    ],
    [
      'permits of a mutex',
      (locks) => locks.mutex('a').acquire({ permits: 2 }),
      'permits are for semaphores; "a" is a lock.',
    ],
    [
      'a semaphore of half a permit',
      (locks) => locks.semaphore('a', 0.5),
      'A semaphore’s number of permits must be a whole number from 1 to 2147483647; got 0.5.',
    ],
    [
      'a signal that is none',
      (locks) => locks.mutex('a').acquire(untyped({ signal: {} })),
      'signal must be an AbortSignal; got an object.',
    ],
    [
      "onError: 'ignore'",
      (locks) => locks.once('a', untyped({ onError: 'ignore' }), () => {}),
      "onError is 'keep' or 'retry'; got \"ignore\".",
    ],
    [
      'an object for a register',
      (locks) => locks.mutex('a').run((lease) => locks.register('a').set(untyped({}), lease)),
      'Register "a"\'s value must be a string; got an object.',
    ],
    [
      '70 kB for a register',
      (locks) => locks.mutex('a').run((lease) => locks.register('a').set('x'.repeat(70_000), lease)),
      'Register "a"\'s value must have 0 to 65536 bytes in UTF-8; got 70000.',
    ],
    [
      'a register without a lease',
      (locks) => locks.register('a').set('v', untyped(undefined)),
      'lease must be a lease that acquire() or run() gave you.',
    ],
  ])('%s', async (_, call, message) => {
    await using locks = new Holdfast('memory:messages');
    expect(await refusal(() => call(locks))).toBe(message);
  });
});

test('a Holdfast that is closed says so, with a code of its own', async () => {
  const locks = new Holdfast('memory:messages');
  await locks.close();
  await expect(locks.mutex('a').acquire()).rejects.toMatchObject({
    code: 'HOLDFAST_CLOSED',
    message: 'This Holdfast has been closed: make a new one.',
  });
});

test('redlock with two servers, which survive the loss of none, warns once', async () => {
  const warned: string[] = [];
  const hear = ({ message }: Error): void => void warned.push(message);
  process.on('warning', hear);
  for (let count = 0; count < 2; count += 1) redlock(['redis://a', 'redis://b']);
  redlock(['redis://a', 'redis://b', 'redis://c']);
  await new Promise((resolve) => setImmediate(resolve));
  process.off('warning', hear);
  expect(warned).toEqual([
    'redlock: a lock needs more than half of the servers, so two servers survive the loss of none of them. Use three or five.',
  ]);
});

test('whoever closes its Holdfast has lost nothing: holdfast:lost is silent', async () => {
  const lost: unknown[] = [];
  const hear = (message: unknown): void => void lost.push(message);
  subscribe('holdfast:lost', hear);
  const locks = new Holdfast('memory:messages');
  const lease = await locks.mutex('kept').acquire();
  await locks.close();
  unsubscribe('holdfast:lost', hear);
  expect(lease.held).toBe(false);
  expect(lost).toEqual([]);
});

test('a timeout says so if the holder is this very process', async () => {
  await using locks = new Holdfast('memory:messages', { label: 'app' });
  await using _held = await locks.mutex('a').acquire();
  const label = `app@${hostname()}:${process.pid}`;
  const rest = '1 before us in line. Wait longer (timeout), or look at it with inspect().';
  for (const [timeout, waited] of [
    [0, 'at the first try'],
    [20, 'within 20 ms'],
  ] as const)
    await expect(locks.mutex('a').acquire({ timeout })).rejects.toMatchObject({
      message: `"a" was not free ${waited}; held by this very process (${label}), ${rest}`,
      heldHere: true,
    });
});
