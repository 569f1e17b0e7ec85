/**
 * A server that has just started grants nothing for a while. That is not busy: whoever waits is told why, and whoever does not
 * wait gets an error that says when to come back.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  AcquireTimeoutError,
  ClosedError,
  EngineError,
  type GuardMessage,
  Holdfast,
  type Lock,
} from '../../../src/index.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { failureOf, queued, until } from './faults-kit.js';

const REMEDY = '?epochGuard=false is for throw-away servers (docs/engines/redis.md)';
/** Longer than any test here takes. */
const TTL = '10m';

function guardText(title: string): string {
  return (
    `${title}: this server started N s ago, or was found restarted or promoted then; locks are granted in N s, ` +
    `because a server that lost its memory must not grant twice; ${REMEDY}`
  );
}

function withoutNumbers(text: string): string {
  return text.replaceAll(/\b\d+ s\b/g, 'N s');
}

/** What the process is warned of until it is disposed. */
function warnings(): string[] & Disposable {
  const texts: string[] = [];
  const hear = ({ name, message }: Error): void => void (name === 'HoldfastWarning' && texts.push(message));
  process.on('warning', hear);
  return Object.assign(texts, { [Symbol.dispose]: () => void process.off('warning', hear) });
}

let server: Server;
let title: string;
let url: string;

beforeAll(async () => {
  server = await startRedis();
  title = `redis at ${LOOPBACK}:${server.port}`;
  url = `redis://:@${LOOPBACK}:${server.port}`;
});

afterAll(() => server.stop());

describe('while a server is guarded', () => {
  const ends: Readonly<Record<string, (lock: Lock) => Promise<unknown>>> = {
    tryAcquire: (lock) => lock.tryAcquire(),
    'a timeout of 0': (lock) => lock.acquire({ timeout: 0 }),
    // It has to reach the server within its time, however busy the machine is.
    'a timeout': (lock) => lock.acquire({ timeout: '3s' }),
    'a try beside one that waits': async (lock) => {
      const waits = new AbortController();
      const waiting = lock.acquire({ signal: waits.signal }).catch(() => {});
      await queued(lock, 1);
      try {
        return await lock.tryAcquire();
      } finally {
        waits.abort();
        await waiting;
      }
    },
    'a timeout behind one that waits': async (lock) => {
      const waits = new AbortController();
      const waiting = lock.acquire({ signal: waits.signal }).catch(() => {});
      await queued(lock, 1);
      try {
        return await lock.acquire({ timeout: '1s' });
      } finally {
        waits.abort();
        await waiting;
      }
    },
  };

  test.each(Object.keys(ends))('%s ends with an error that says why and when to come back', async (how) => {
    await using locks = new Holdfast(url, { ttl: TTL });
    const error = await failureOf(ends[how]!(locks.mutex(`ends by ${how}`)));
    expect(error).toBeInstanceOf(EngineError);
    const { message, retryable, retryAfterMs, lock, engine } = error as EngineError;
    expect(withoutNumbers(message)).toBe(`"ends by ${how}" can't be granted yet by ${guardText(title)}.`);
    expect({ retryable, lock, engine }).toEqual({ retryable: true, lock: `ends by ${how}`, engine: title });
    expect(retryAfterMs).toBeGreaterThan(60_000);
    expect(retryAfterMs).toBeLessThanOrEqual(602_000);
  });

  const attempts: Readonly<Record<string, (locks: Holdfast) => Promise<unknown>[]>> = {
    'two tries for one lock': (locks) => [locks.mutex('a').tryAcquire(), locks.mutex('a').tryAcquire()],
    'two timeouts of 0': (locks) => [1, 2].map(() => locks.mutex('a').acquire({ timeout: 0 })),
    'tries for two locks': (locks) => ['a', 'b'].map((name) => locks.mutex(name).tryAcquire()),
    'two tries to read': (locks) => [1, 2].map(() => locks.rwLock('a').read.tryAcquire()),
    'two tries to write': (locks) => [1, 2].map(() => locks.rwLock('a').write.tryAcquire()),
    'tries to read and to write': (locks) =>
      (['read', 'write', 'read'] as const).map((half) => locks.rwLock('a')[half].tryAcquire()),
    'tries to write and to read': (locks) =>
      (['write', 'read', 'write'] as const).map((half) => locks.rwLock('a')[half].tryAcquire()),
    'two tries for one semaphore': (locks) => [1, 2].map(() => locks.semaphore('a', 2).tryAcquire({ permits: 2 })),
    'two tries for several locks': (locks) =>
      [1, 2].map(() => locks.all([locks.mutex('a'), locks.semaphore('b', 2)]).tryAcquire()),
    'a try and one for several locks': (locks) => [
      locks.mutex('a').tryAcquire(),
      locks.all([locks.mutex('a'), locks.mutex('b')]).tryAcquire(),
    ],
  };

  test.each(Object.keys(attempts))('%s at once all end so, before anything is known of the server', async (what) => {
    await using locks = new Holdfast(url, { ttl: TTL });
    const errors = await Promise.all(attempts[what]!(locks).map(failureOf));
    for (const error of errors) {
      expect(error).toBeInstanceOf(EngineError);
      expect((error as EngineError).retryAfterMs).toBeGreaterThan(60_000);
    }
  });

  test('a try at once behind one that waits ends so, and the other goes on to wait', async () => {
    await using locks = new Holdfast(url, { ttl: TTL });
    const waits = new AbortController();
    const waiting = failureOf(locks.mutex('first waits').acquire({ signal: waits.signal }));
    expect(await failureOf(locks.mutex('first waits').tryAcquire())).toBeInstanceOf(EngineError);
    expect(locks.stats().waiting).toBe(1);
    waits.abort(new Error('enough'));
    expect(await waiting).toMatchObject({ message: 'enough' });
  });

  test('locks of several kinds end in the same way', async () => {
    await using locks = new Holdfast(url, { ttl: TTL });
    const { read, write } = locks.rwLock('catalog');
    for (const lock of [read, write, locks.semaphore('gpu', 2)])
      expect(await failureOf(lock.tryAcquire())).toMatchObject({ code: 'HOLDFAST_ENGINE', lock: lock.name });
    expect(await failureOf(locks.all([write, locks.mutex('other')]).tryAcquire())).toMatchObject({
      code: 'HOLDFAST_ENGINE',
    });
  });

  test('it is ready, and its stats tell for how long it grants nothing', async () => {
    await using locks = new Holdfast(url, { ttl: TTL });
    expect(locks.stats().guardEndsInMs).toBeUndefined();
    await locks.ready();
    expect(locks.stats().guardEndsInMs).toBeGreaterThan(60_000);
  });

  test('the process is warned once, and a channel tells that it has begun', async () => {
    const told: unknown[] = [];
    const hear = (message: unknown): void => void told.push(message);
    subscribe('holdfast:guard', hear);
    using warned = warnings();
    await using locks = new Holdfast(url, { ttl: TTL });
    for (const name of ['a', 'b', 'a']) await failureOf(locks.mutex(name).acquire({ timeout: 20 }));
    await failureOf(locks.mutex('a').tryAcquire());
    unsubscribe('holdfast:guard', hear);
    await until('the warning is heard', async () => warned.length > 0);
    expect(warned.map(withoutNumbers)).toEqual([guardText(title)]);
    expect(told).toEqual([{ state: 'begun', engine: title, endsInMs: expect.any(Number) as number }]);
  });

  test('once that waits for it hears that its Holdfast is closed', async () => {
    const locks = new Holdfast(url, { ttl: TTL });
    const running = failureOf(locks.once('nightly', {}, () => 'ran'));
    await until('it has met the guard', async () => locks.stats().guardEndsInMs !== undefined);
    await locks.close();
    expect(await running).toBeInstanceOf(ClosedError);
  });
});

/** The guard lasts long enough for a slow machine to meet it, and is waited for. */
describe.concurrent('when the guard ends', () => {
  test('whoever waited has the lock, once has run on one of three machines, and a channel tells', async () => {
    await using young = await startRedis();
    const told: GuardMessage[] = [];
    const at = `redis at ${LOOPBACK}:${young.port}`;
    const hear = (message: unknown): void =>
      void ((message as GuardMessage).engine === at && told.push(message as never));
    subscribe('holdfast:guard', hear);
    const machines = Array.from({ length: 3 }, () => new Holdfast(`redis://${LOOPBACK}:${young.port}?epochGuard=8s`));
    const once = machines.map((locks) => locks.once('nightly', { atLeast: '1h' }, () => 'ran'));
    const lease = await machines[0]!.mutex('job').acquire();
    expect(lease.held).toBe(true);
    expect((await Promise.all(once)).filter(({ ran }) => ran)).toEqual([{ ran: true, value: 'ran' }]);
    await until('the end is told', async () => told.some(({ state }) => state === 'ended'));
    expect(machines[0]!.stats().guardEndsInMs).toBeUndefined();
    unsubscribe('holdfast:guard', hear);
    await Promise.all(machines.map((locks) => locks.close()));
  });
});

test('who stands behind a holder that the server remembers is told of the holder, not of the guard', async () => {
  await using lasting = await startRedis({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
  const here = `redis://${LOOPBACK}:${lasting.port}?epochGuard=`;
  await using holder = new Holdfast(`${here}false`, { ttl: TTL, label: 'holder' });
  const lease = await holder.mutex('job').acquire();
  await lasting.restart();
  await using next = new Holdfast(`${here}true`, { ttl: TTL });
  await next.ready();
  expect(await failureOf(next.mutex('free').tryAcquire())).toBeInstanceOf(EngineError);
  expect(await next.mutex('job').tryAcquire()).toBeUndefined();
  const error = await failureOf(next.mutex('job').acquire({ timeout: 2_000 }));
  expect(error).toBeInstanceOf(AcquireTimeoutError);
  expect((error as AcquireTimeoutError).holder?.label).toMatch(/^holder@/);
  await lease.release();
});

describe('redlock, while most of its nodes have just started', () => {
  test('a try ends with the same error, and one behind a holder with the holder', async () => {
    await using first = await startRedis();
    await using second = await startRedis();
    await using third = await startRedis();
    const hosts = [first, second, third].map(({ port }) => `${LOOPBACK}:${port}`);
    await using locks = new Holdfast(`redlock://${hosts.join(',')}`, { ttl: TTL });
    for (const lost of [locks.mutex('job').tryAcquire(), locks.mutex('job').acquire({ timeout: '3s' })]) {
      const error = (await failureOf(lost)) as EngineError;
      expect(error).toBeInstanceOf(EngineError);
      expect(withoutNumbers(error.message)).toBe(
        `"job" can't be granted yet by ${guardText(`redlock at ${hosts.join(', ')}`)}.`,
      );
      expect(error.retryAfterMs).toBeGreaterThan(60_000);
    }
    await using unguarded = new Holdfast(`redlock://${hosts.join(',')}?epochGuard=false`, { ttl: TTL });
    await using _lease = await unguarded.mutex('taken').acquire();
    expect(await locks.mutex('taken').tryAcquire()).toBeUndefined();
  });
});
