/** One server, found by a URL or a client: what is wrong with them is said, and what we opened is closed. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { redis as redisEngine } from '../../../src/engines/redis/index.js';
import { ConfigError, EngineError, Holdfast } from '../../../src/index.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { connect, failureOf, standing, until, urlOf } from './faults-kit.js';

const PASSWORD = 'open-sesame-7731';
/** One that the kernel gives to nobody: a port that is only free now may be a server's of another test a moment later. */
const NOBODYS_PORT = 1;
/** Only for processes that do not end; it takes a second. */
const ENDS_WITHIN_MS = 40_000;

let server: Server;

beforeAll(async () => {
  server = await startRedis();
  await command(server.port, 'ACL', 'SETUSER', 'app', 'on', `>${PASSWORD}`, '~*', '&*', '+@all');
});

afterAll(() => server.stop());

describe.concurrent('what close() closes', () => {
  test('everything but a client of the user, which works as before', async () => {
    await using own = await startRedis();
    using client = connect(own.port);
    const locks = new Holdfast(redisEngine(client, { epochGuard: false }), { ttl: '6s' });
    await locks.mutex('job').acquire();
    expect(await subscribers(own.port)).toBe(1);
    await locks.close();
    expect(client.status).toBe('ready');
    expect(await client.ping()).toBe('PONG');
    await until('our own subscriber is gone', async () => (await subscribers(own.port)) === 0);
    // The same client serves again, and what was not released is free.
    await using again = new Holdfast(redisEngine(client, { epochGuard: false }), { ttl: '6s' });
    await (await again.mutex('job').acquire({ timeout: 0 })).release();
  });

  test.each(['url', 'client', 'unused'])('all that could keep a process alive (%s)', async (how) => {
    const { output, code } = await child(how, urlOf(server.port));
    expect(output).toBe('done\n');
    expect(code).toBe(0);
  });

  test('all that could keep a process alive, also where nothing could be reached', async () => {
    const { output, code } = await child('unreachable', urlOf(NOBODYS_PORT));
    expect(output).toBe('EngineError\ndone\n');
    expect(code).toBe(0);
  });
});

test.each([
  ['redis', urlOf(NOBODYS_PORT)],
  ['a cluster', `redis+cluster://127.0.0.1:${NOBODYS_PORT}`],
  ['Sentinel', `redis+sentinel://127.0.0.1:${NOBODYS_PORT}/mymaster`],
])('what can’t be reached keeps no process alive after its error, though nobody closes it: %s', async (_, url) => {
  const { output, code } = await child('unclosed', url);
  expect(output).toBe('EngineError\ndone\n');
  expect(code).toBe(0);
});

test('a lock that is held keeps no process alive', async () => {
  const { output, code } = await child('holding', urlOf(server.port));
  expect(output).toBe('done\n');
  expect(code).toBe(0);
});

describe.concurrent('a server that can’t be used', () => {
  test('refuses the connection: EngineError, which says so', async () => {
    const error = await refusalOf(urlOf(NOBODYS_PORT));
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: true });
    expect(inspect(error)).toContain('ECONNREFUSED');
  });

  test('has a name that does not exist: EngineError, which says so', async () => {
    const error = await refusalOf('redis://holdfast.invalid:6379?epochGuard=false');
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE' });
    expect(inspect(error)).toMatch(/ENOTFOUND|EAI_AGAIN/);
  });

  test('knows another password: EngineError, which says so and never shows it', async () => {
    const error = await refusalOf(urlOf(server.port, { user: 'app', password: `${PASSWORD}-wrong` }));
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE' });
    expect(inspect(error)).toContain('WRONGPASS');
    expect(inspect(error, { depth: 10, showHidden: true })).not.toContain(PASSWORD);
  });

  test('knows another password: trying again can’t help, so acquire does not wait', async () => {
    const error = await refusalOf(urlOf(server.port, { user: 'app', password: 'wrong' }));
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: false });
  });

  test('has no database of that number: no lock is granted in another one', async () => {
    const error = await refusalOf(`redis://127.0.0.1:${server.port}/99?epochGuard=false`);
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE' });
    expect(inspect(error)).toMatch(/DB index/);
  });

  test('wants a password that the URL lacks: EngineError, which says so', async () => {
    await using own = await startRedis();
    await command(own.port, 'CONFIG', 'SET', 'requirepass', PASSWORD);
    const error = await refusalOf(urlOf(own.port));
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE' });
    expect(inspect(error)).toContain('NOAUTH');
  });
});

describe.concurrent('a URL', () => {
  test('carries a password with any character in it', async () => {
    await using own = await startRedis();
    const password = 'p@ss/w?rd:%#';
    await command(own.port, 'ACL', 'SETUSER', 'app', 'on', `>${password}`, '~*', '&*', '+@all');
    const url = urlOf(own.port, { user: 'app', password: encodeURIComponent(password) });
    await using locks = new Holdfast(url, { ttl: '6s' });
    await locks.mutex('job').run((lease) => lease.assertHeld());
  });

  test('chooses a database, which keeps its locks apart', async () => {
    await using own = await startRedis();
    const urlOfDb = (db: number): string => `redis://127.0.0.1:${own.port}/${db}?epochGuard=false`;
    await using first = new Holdfast(urlOfDb(0), { ttl: '6s' });
    await using second = new Holdfast(urlOfDb(1), { ttl: '6s' });
    await first.mutex('job').acquire();
    const lease = await second.mutex('job').acquire({ timeout: '5s' });
    expect(await standing(second.mutex('job'))).toEqual({ held: 1, waiting: 0 });
    await lease.release();
    expect(await standing(first.mutex('job'))).toEqual({ held: 1, waiting: 0 });
  });

  test.each([
    ['a database that is no number', `redis://app:${PASSWORD}@127.0.0.1:6379/locks`, /number of a database/],
    ['a database below zero', `redis://app:${PASSWORD}@127.0.0.1:6379/-1`, /number of a database/],
    ['several hosts', `redis://app:${PASSWORD}@one:6379,two:6379`, /one host/],
    ['a Sentinel without a name', `redis+sentinel://app:${PASSWORD}@one:26379,two:26379`, /Sentinel/],
    ['a cluster with a database', `redis+cluster://app:${PASSWORD}@one:6379/3`, /database 0/],
    ['no host', 'redis:', /host/],
    ['a port that is none', `redis://app:${PASSWORD}@one:99999`, /host/],
    ['a guard that is neither on nor off', `redis://app:${PASSWORD}@one:6379?epochGuard=maybe`, /epochGuard/],
    ['a parameter that nobody knows', `redis://app:${PASSWORD}@one:6379?guard=false`, /guard/],
  ])('with %s is refused when the Holdfast is made', (_, url, message) => {
    const make = (): Holdfast => new Holdfast(url);
    expect(make).toThrow(ConfigError);
    expect(make).toThrow(message);
    expect(make).not.toThrow(PASSWORD);
  });
});

/** What an acquire without a timeout of its own rejects with. */
async function refusalOf(url: string): Promise<EngineError> {
  await using locks = new Holdfast(url, { ttl: '1500ms' });
  const failure = await failureOf(locks.mutex('job').acquire());
  expect(failure).toBeInstanceOf(EngineError);
  return failure as EngineError;
}

async function subscribers(port: number): Promise<number> {
  const clients = await command(port, 'CLIENT', 'LIST', 'TYPE', 'pubsub');
  return String(clients).split('\n').filter(Boolean).length;
}

async function child(how: string, url: string): Promise<{ output: string; code: number | null }> {
  const file = fileURLToPath(new URL('./single-child.ts', import.meta.url));
  const process_ = spawn(process.execPath, ['--import', 'tsx', file, how, url], {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: ENDS_WITHIN_MS,
    killSignal: 'SIGKILL',
  });
  const [output, [code]] = await Promise.all([text(process_.stdout), once(process_, 'exit')]);
  return { output, code: code as number | null };
}
