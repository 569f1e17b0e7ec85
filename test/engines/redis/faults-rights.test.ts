/** Users of Redis who may not do everything, and what an error may tell about them: never a password or a session's id. */
import { readFile } from 'node:fs/promises';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import { carrying, failureOf, lossOf, queued, renewed, urlOf } from './faults-kit.js';

const PASSWORD = 'open-sesame-7731';

describe.concurrent('a user of Redis', () => {
  test('without INFO locks as others do, and one warning says what that costs', async () => {
    await using server = await startRedis();
    await permit(server.port, '+@all', '-info');
    const warnings: Error[] = [];
    // Node and the client may have something to say as well.
    const listen = (warning: Error): void => {
      if (warning.name === 'HoldfastWarning') warnings.push(warning);
    };
    process.on('warning', listen);
    try {
      for (let instance = 0; instance < 2; instance += 1) {
        await using locks = new Holdfast(urlOfApp(server.port, true), { ttl: '6s' });
        await locks.mutex('job').run((lease) => lease.assertHeld());
        await locks.mutex('job').run((lease) => lease.assertHeld());
      }
      await expect.poll(() => warnings.length, { timeout: 10_000 }).toBeGreaterThan(0);
    } finally {
      process.off('warning', listen);
    }
    expect(warnings.map(({ message }) => message)).toEqual([expect.stringContaining('+info')]);
  });

  test('without PUBLISH waits for a beat instead of a message, and is served in order', async () => {
    await using server = await startRedis();
    await permit(server.port, '+@all', '-publish', '-spublish');
    await using first = new Holdfast(urlOfApp(server.port), { ttl: '3s' });
    await using second = new Holdfast(urlOfApp(server.port), { ttl: '3s' });
    const lease = await first.mutex('job').acquire();
    const waiting = second.mutex('job').acquire();
    await queued(first.mutex('job'), 1);
    expect(await lease.release()).toBe(true);
    const next = await waiting;
    expect(next.token).toBeGreaterThan(lease.token);
    expect(await next.release()).toBe(true);
  });

  test.each([
    ['EVAL', 'evalsha', ['-eval', '-evalsha']],
    ['SUBSCRIBE', 'subscribe', ['-subscribe', '-ssubscribe']],
  ])('without %s is told which command it lacks', async (_, name, rights) => {
    await using server = await startRedis();
    await permit(server.port, '+@all', ...rights);
    await using locks = new Holdfast(urlOfApp(server.port), { ttl: '6s' });
    const failure = await failureOf(locks.mutex('job').acquire({ timeout: '5s' }));
    expect(failure).toBeInstanceOf(EngineError);
    expect(inspect(failure)).toContain(`'${name}'`);
    expectNoSecrets(failure, []);
  });

  test('without the keys of the namespace is told that it lacks them', async () => {
    await using server = await startRedis();
    await permit(server.port, '+@all', 'resetkeys', '~other:*');
    await using locks = new Holdfast(urlOfApp(server.port), { ttl: '6s' });
    const failure = await failureOf(locks.mutex('job').acquire({ timeout: '5s' }));
    expect(failure).toBeInstanceOf(EngineError);
    expect(inspect(failure)).toMatch(/NOPERM/);
    expectNoSecrets(failure, []);
  });

  test('without rights is not to try again', async () => {
    await using server = await startRedis();
    await permit(server.port, '+@all', '-eval', '-evalsha');
    await using locks = new Holdfast(urlOfApp(server.port), { ttl: '6s' });
    const failure = await failureOf(locks.mutex('job').acquire());
    expect(failure).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: false });
  });

  test('with the rights that the page of the engine lists can do everything', async () => {
    await using server = await startRedis();
    await permit(server.port, '-@all', 'resetkeys', 'resetchannels', ...(await documentedRights()));
    await using first = new Holdfast(urlOfApp(server.port, true), { ttl: '6s' });
    await using second = new Holdfast(urlOfApp(server.port, true), { ttl: '6s' });
    const lock = first.rwLock('job').write;
    const lease = await lock.acquire();
    const waiting = second.mutex('job').acquire();
    await queued(lock, 1);
    await first.register('job').set('value', lease);
    expect(await first.register('job').get(lease)).toMatchObject({ value: 'value' });
    expect(await first.once('nightly', { atLeast: '1m' }, () => 'ran')).toEqual({ ran: true, value: 'ran' });
    await renewed(lease);
    const reader = await lease.downgrade();
    await reader.release();
    const { claims } = await lock.inspect();
    const evicted = await waiting;
    expect(await first.evict('job', claims[0]!.id, 'a test')).toBe(true);
    expect(await lossOf(evicted)).toMatchObject({ reason: 'evicted', detail: 'a test' });
  });
});

describe.concurrent('an error', () => {
  test('never shows a password or a session’s id, whatever the client hung on it', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    await permit(server.port, '+@all');
    await using locks = new Holdfast(urlOfApp(proxy.port), { ttl: '6s' });
    await using other = new Holdfast(urlOfApp(server.port), { ttl: '6s' });
    const lease = await other.mutex('held').acquire();
    await locks.ready();
    const ids = await sessions(server.port);
    expect(ids).toHaveLength(2);
    const errors: unknown[] = [];
    const fail = async (name: string): Promise<void> => {
      errors.push(await failureOf(locks.mutex(name).acquire({ timeout: '300ms' })));
    };
    await fail('held');
    // A reply that got lost: the client rejects with the command that it had sent.
    const lost = proxy.loseReplyOf(carrying('enter')).then(() => proxy.set({ mode: 'reset' }));
    await fail('job');
    await lost;
    proxy.set({ mode: 'pass' });
    await locks.mutex('job').run(({ token }) => expect(token).toBeDefined());
    ids.push(...(await sessions(server.port)));
    // An answer that is an error: it carries the command, too.
    await permit(server.port, '-eval', '-evalsha');
    await fail('job');
    errors.push(await failureOf(inspection(locks)), await failureOf(locks.evict('held', 'claim')), await lossOf(lease));
    for (const error of errors) {
      expect(error).toMatchObject({ code: expect.stringMatching(/^HOLDFAST_/) });
      expectNoSecrets(error, ids);
    }
  });

  test('can be written as JSON, tokens included', async () => {
    await using server = await startRedis();
    await using locks = new Holdfast(urlOf(server.port), { ttl: '6s' });
    await using other = new Holdfast(urlOf(server.port), { ttl: '6s' });
    const lease = await other.mutex('job').acquire();
    const timeout = await failureOf(locks.mutex('job').acquire({ timeout: '100ms' }));
    await command(server.port, 'FLUSHALL');
    const loss = await lossOf(lease);
    for (const error of [timeout, loss]) expect(JSON.stringify(error)).toContain('HOLDFAST_');
  });
});

/** The user `app`, with the rights that it has from now on. */
async function permit(port: number, ...rights: readonly string[]): Promise<void> {
  await command(port, 'ACL', 'SETUSER', 'app', 'on', `>${PASSWORD}`, '~*', '&*', ...rights);
}

/** What the page says a user needs, as words of ACL SETUSER. */
async function documentedRights(): Promise<string[]> {
  const page = await readFile(new URL('../../../docs/engines/redis.md', import.meta.url), 'utf8');
  const [, rights] = /## Access rights.*?```text\n(.*?)```/s.exec(page) ?? [];
  if (rights === undefined) throw new Error('the page of the engine lists no rights');
  return rights.split(/\s+/).filter(Boolean);
}

function urlOfApp(port: number, epochGuard = false): string {
  return urlOf(port, { user: 'app', password: PASSWORD, epochGuard });
}

async function sessions(port: number): Promise<string[]> {
  const ids = await command(port, 'ZRANGE', 'holdfast:{0}:sessions', '0', '-1');
  return Array.isArray(ids) ? ids.map(String) : [];
}

async function inspection(locks: Holdfast): Promise<void> {
  await locks.mutex('held').inspect();
}

/** An error with what is not enumerable of it, as loggers write errors. */
function unfolded(value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  return Object.fromEntries(Object.getOwnPropertyNames(value).map((key) => [key, Reflect.get(value, key) as unknown]));
}

/** In anything that a logger might print of it. */
function expectNoSecrets(error: unknown, sessionIds: readonly string[]): void {
  const printed = [
    inspect(error, { depth: 20, showHidden: true }),
    JSON.stringify(error, (_, value: unknown) => (typeof value === 'bigint' ? `${value}` : unfolded(value))),
  ].join('\n');
  for (const secret of [PASSWORD, ...sessionIds]) expect(printed).not.toContain(secret);
}
