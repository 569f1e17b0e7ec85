/**
 * Take, keep and drop by version, with whatever may come between. A version is a number that a restarted memcached gives
 * again, to somebody else.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim } from '../../../src/core/engine.js';
import { Connection } from '../../../src/engines/memcached/client/connection.js';
import { MemcachedSlots } from '../../../src/engines/memcached/protocol.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { startMemcached } from '../../servers/memcached.js';
import { ask, LOOPBACK } from '../../servers/ports.js';
import type { Server } from '../../servers/server.js';
import { stored } from './kit.js';

function setupOf(port: number): ConstructorParameters<typeof Connection>[0] {
  return { server: { host: LOOPBACK, port }, user: undefined, password: undefined, clock: systemClock };
}

/** Sends each command when the one before it is answered, so that something can be done before one of them. */
class Interrupted extends Connection {
  before: { readonly command: string; readonly act: () => Promise<unknown> } | undefined;
  #last: Promise<unknown> = Promise.resolve();

  override call(...words: Parameters<Connection['call']>): ReturnType<Connection['call']> {
    const [command] = words;
    const called = this.#last.then(async () => {
      if (this.before && command.startsWith(this.before.command)) await this.before.act();
      return super.call(...words);
    });
    this.#last = called.catch(() => {});
    return called;
  }
}

function store(port: number, connection = new Connection(setupOf(port))): MemcachedSlots & Disposable {
  const slots = new MemcachedSlots({ connection, namespace: 'holdfast', clock: systemClock, ttlMs: 60_000 });
  return Object.assign(slots, { [Symbol.dispose]: () => connection.close() });
}

function claimOf(id: string, name = 'job'): Claim {
  return { id, line: { kind: 'lock', name }, serial: 1, weight: 1, capacity: 1, wait: true, note: '' };
}

let server: Server;

beforeAll(async () => {
  server = await startMemcached();
});

afterAll(() => server.stop());

test('whoever held before a restart neither renews nor frees what has the same version after it', async () => {
  using before = store(server.port);
  using after = store(server.port);
  const versionNow = (): Promise<string> => ask(server.port, 'mg holdfast:job c\r\n');
  const { token: first } = await before.take(claimOf('before'));
  const version = await versionNow();
  await server.restart();
  const { token: second } = await after.take(claimOf('after'));
  expect(second).toBeGreaterThan(first!);
  // Else this test would prove nothing.
  expect(await versionNow()).toBe(version);

  // The first call may find only that its connection is gone.
  const lost = await before.keep([{ ...claimOf('before'), token: first! }]).catch(() => ['before']);
  expect(lost).toEqual(['before']);
  expect(await before.keep([{ ...claimOf('before'), token: first! }])).toEqual(['before']);
  expect(await stored(server.port, 'job')).toBe('after');
  expect(await before.drop(claimOf('before'))).toBe(false);
  expect(await stored(server.port, 'job')).toBe('after');
  expect(await after.drop(claimOf('after'))).toBe(true);
});

test('a version that a late command of ours has changed is read again: nothing is lost by it', async () => {
  using one = store(server.port);
  using late = store(server.port);
  const { token } = await one.take(claimOf('same', 'late'));
  const held = [{ ...claimOf('same', 'late'), token: token! }];
  for (const slots of [late, one, late, one]) expect(await slots.keep(held)).toEqual([]);
  expect(await late.drop(claimOf('other', 'late'))).toBe(false);
  expect(await one.drop(claimOf('same', 'late'))).toBe(true);
});

test('a lock that another has by the time that its token is made is not granted: the other’s may be larger', async () => {
  const connection = new Interrupted(setupOf(server.port));
  using one = store(server.port, connection);
  using other = store(server.port);
  const act = async (): Promise<void> => {
    await ask(server.port, 'md holdfast:proof\r\n');
    expect((await other.take(claimOf('other', 'proof'))).token).toBeDefined();
  };
  connection.before = { command: 'ma', act };
  expect((await one.take(claimOf('one', 'proof'))).token).toBeUndefined();
  expect(await stored(server.port, 'proof')).toBe('other');
});

test('a take whose reply was lost is found by the next, with a token, and nobody else has it meanwhile', async () => {
  await using proxy = await FaultProxy.start(server.port);
  using one = store(proxy.port);
  using other = store(server.port);
  const lost = proxy.loseReplyOf((request) => request.includes(' ME '));
  await expect(one.take(claimOf('one', 'lost'))).rejects.toThrow();
  await lost;
  expect((await other.take(claimOf('other', 'lost'))).token).toBeUndefined();
  expect((await one.take(claimOf('one', 'lost'))).token).toBeDefined();
  expect(await one.drop(claimOf('one', 'lost'))).toBe(true);
  expect((await other.take(claimOf('other', 'lost'))).token).toBeDefined();
});

test('what memcached forgot, and another has since, is neither renewed nor freed', async () => {
  using one = store(server.port);
  using other = store(server.port);
  const { token } = await one.take(claimOf('one', 'forgotten'));
  await ask(server.port, 'md holdfast:forgotten\r\n');
  expect((await other.take(claimOf('other', 'forgotten'))).token).toBeGreaterThan(token!);
  expect(await one.keep([{ ...claimOf('one', 'forgotten'), token: token! }])).toEqual(['one']);
  expect(await stored(server.port, 'forgotten')).toBe('other');
  expect(await one.drop(claimOf('one', 'forgotten'))).toBe(false);
  expect(await stored(server.port, 'forgotten')).toBe('other');
});
