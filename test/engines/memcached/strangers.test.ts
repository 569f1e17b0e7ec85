/** What others store under our keys: it may keep us from a lock, but it never costs one, and never makes a token smaller. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EngineError } from '../../../src/index.js';
import { startMemcached } from '../../servers/memcached.js';
import { ask } from '../../servers/ports.js';
import type { Server } from '../../servers/server.js';
import { renewed } from '../../servers/lines.js';
import { user } from './kit.js';

const UNHURRIED = { ttl: '60s' } as const;

let server: Server;

beforeAll(async () => {
  server = await startMemcached();
});

afterAll(() => server.stop());

async function store(key: string, value: string): Promise<void> {
  expect(await ask(server.port, `ms ${key} ${value.length} T600\r\n${value}\r\n`)).toBe('HD\r\n');
}

describe('a counter that is no counter of ours', () => {
  test.each(['0', '7', '18446744073709551615', '9999999999999999998', '9007199254740991', 'x', '', 'x'.repeat(90_000)])(
    'is an EngineError that names it, and no token: %#',
    async (value) => {
      await using locks = user(server.port, UNHURRIED);
      await using others = user(server.port, UNHURRIED);
      await ask(server.port, 'md holdfast:%token\r\n');
      const kept = await locks.mutex('kept').acquire();
      await store('holdfast:%token', value);
      for (const each of [locks, others])
        await expect(each.mutex('other').acquire({ timeout: '20s' })).rejects.toMatchObject({
          code: 'HOLDFAST_ENGINE',
          retryable: false,
          message: expect.stringContaining('holdfast:%token') as unknown,
        });
      expect(kept.held).toBe(true);
      // Nothing stays of those that failed, and after somebody has looked all goes on.
      await ask(server.port, 'md holdfast:%token\r\n');
      const next = await others.mutex('other').acquire({ timeout: '20s' });
      expect(next.token).toBeGreaterThan(kept.token);
      expect(await next.release()).toBe(true);
      expect(await kept.release()).toBe(true);
    },
  );

  test('but could be, is found by whoever has had a larger token', async () => {
    await using locks = user(server.port, UNHURRIED);
    await ask(server.port, 'md holdfast:%token\r\n');
    await (await locks.mutex('a').acquire()).release();
    await store('holdfast:%token', '1700000000000000');
    await expect(locks.mutex('a').acquire({ timeout: '20s' })).rejects.toBeInstanceOf(EngineError);
  });

  test('costs nobody a lock that is held, however often others ask', async () => {
    await using locks = user(server.port);
    await ask(server.port, 'md holdfast:%token\r\n');
    const kept = await locks.mutex('kept').acquire();
    await store('holdfast:%token', 'x');
    const stop = new AbortController();
    const asking = (async () => {
      while (!stop.signal.aborted)
        await locks
          .mutex('other')
          .acquire({ timeout: '20s' })
          .catch(() => {});
    })();
    await renewed(kept);
    await renewed(kept);
    stop.abort();
    await asking;
    expect(await kept.release()).toBe(true);
  });
});

test('a lock that holds foreign text is held by a stranger, whatever that is', async () => {
  await ask(server.port, 'md holdfast:%token\r\n');
  await using locks = user(server.port, UNHURRIED);
  for (const [at, value] of ['', 'x', '\u{1b}[31m', 'HD c1', 'x'.repeat(900_000)].entries()) {
    await store(`holdfast:foreign-${at}`, value);
    expect(await locks.mutex(`foreign-${at}`).tryAcquire()).toBeUndefined();
    await ask(server.port, `md holdfast:foreign-${at}\r\n`);
    expect(await (await locks.mutex(`foreign-${at}`).acquire({ timeout: '20s' })).release()).toBe(true);
  }
});
