/** Locks in a memcached that works: who else may touch them, what their names may be, and what stays of a process. */
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ConfigError, EngineError, Holdfast, UnsupportedError } from '../../../src/index.js';
import { failureOf, until } from '../redis/faults-kit.js';
import { memcachedKeys, startMemcached } from '../../servers/memcached.js';
import { ask } from '../../servers/ports.js';
import type { Server } from '../../servers/server.js';
import { Worker } from '../sqlite/processes.js';
import { stored, TTL_MS, urlOf, user } from './kit.js';

const PASSWORD = 'open-sesame-7731';
const CHILD = join(import.meta.dirname, 'child.mjs');

let server: Server;

beforeAll(async () => {
  server = await startMemcached();
});

afterAll(() => server.stop());

/** A call may take a third of that: whoever tries on a busy machine is not told that memcached is silent. */
const UNHURRIED = { ttl: '60s' } as const;

describe.concurrent('on the same key', () => {
  test('what somebody else added excludes us until it is gone', async () => {
    await using locks = user(server.port, UNHURRIED);
    expect(await ask(server.port, 'ms holdfast:theirs 5 ME T600\r\nother\r\n')).toBe('HD\r\n');
    expect(await locks.mutex('theirs').tryAcquire()).toBeUndefined();
    const waiting = locks.mutex('theirs').acquire({ timeout: '20s' });
    expect(await ask(server.port, 'md holdfast:theirs\r\n')).toBe('HD\r\n');
    expect(await (await waiting).release()).toBe(true);
  });

  test('what we have excludes others, and is gone when it is released', async () => {
    await using locks = user(server.port, UNHURRIED);
    const lease = await locks.mutex('ours').acquire();
    expect(await ask(server.port, 'ms holdfast:ours 5 ME T600\r\nother\r\n')).toBe('NS\r\n');
    expect(await lease.release()).toBe(true);
    expect(await stored(server.port, 'ours')).toBeUndefined();
  });

  test('what another stored over ours is not deleted by our release, which says that it was lost', async () => {
    await using locks = user(server.port, UNHURRIED);
    const lease = await locks.mutex('taken').acquire();
    await ask(server.port, 'ms holdfast:taken 5 T600\r\nother\r\n');
    expect(await lease.release()).toBe(false);
    expect(await stored(server.port, 'taken')).toBe('other');
  });

  test('memcached keeps a lock for its ttl and up to two seconds more: its last second may be a short one', async () => {
    await using locks = user(server.port, { ttl: 4_500 });
    const secondNow = async (): Promise<number> =>
      Number(/uptime (\d+)/.exec(await ask(server.port, 'stats\r\n'))?.[1]);
    let left: number | undefined;
    await until('it is taken and looked at within one second of memcached’s', async () => {
      const before = await secondNow();
      await using _ = await locks.mutex('seconds').acquire();
      left = Number(/ t(\d+)/.exec(await ask(server.port, 'mg holdfast:seconds t\r\n'))?.[1]);
      return (await secondNow()) === before;
    });
    expect(left).toBe(6);
  });
});

describe.concurrent('a name', () => {
  test.each(['with spaces T0 ME', 'ünïcode ☂', '%20', ':token', '%token', 'x'.repeat(512), '☂'.repeat(170), 'C1 I MS'])(
    '%j excludes those who use the same',
    async (name) => {
      await using one = user(server.port, UNHURRIED);
      await using other = user(server.port, UNHURRIED);
      const first = await one.mutex(name).acquire();
      expect(await other.mutex(name).tryAcquire()).toBeUndefined();
      await first.release();
      const second = await other.mutex(name).acquire({ timeout: '20s' });
      expect(second.token).toBeGreaterThan(first.token);
      await second.release();
    },
  );

  test.each(['a\r\nflush_all\r\n', 'a\nb', 'a\0b', '', 'x'.repeat(513)])('%j is refused', (name) => {
    const locks = user(server.port);
    expect(() => locks.mutex(name)).toThrow(ConfigError);
  });
});

test('what it can’t do is refused when a lock is made, and a URL that makes no sense at once', () => {
  const locks = user(server.port);
  expect(() => locks.rwLock('books')).toThrow(UnsupportedError);
  expect(() => locks.semaphore('pool', 2)).toThrow(UnsupportedError);
  for (const url of ['memcached://one,one', 'memcached://', 'memcached://one/path', 'memcached://a%20b:c@one'])
    expect(() => new Holdfast(url)).toThrow(ConfigError);
  expect(() => user(server.port, { ttl: 2_999 })).toThrow(ConfigError);
});

describe('several servers', () => {
  test('fail apart: the names of a dead one are an EngineError, all others go on', async () => {
    await using dead = await startMemcached();
    await using locks = new Holdfast(urlOf(server.port, dead.port), { ttl: TTL_MS });
    const names = Array.from({ length: 16 }, (_, at) => `several-${at}`);
    for (const name of names) await locks.mutex(name).run(() => {});
    const there = await Promise.all([server, dead].map(memcachedKeys));
    for (const keys of there) expect(keys).toContain('holdfast:%token');
    await dead.kill();
    const tried = await Promise.all(
      names.map((name) =>
        locks
          .mutex(name)
          // A busy machine must be able to reach the other one by then.
          .acquire({ timeout: 5_000 })
          .then(
            (lease) => lease.release(),
            (error: unknown) => error,
          ),
      ),
    );
    const failed = tried.filter((result) => result !== true);
    expect(failed.length).toBeGreaterThan(0);
    expect(failed.length).toBeLessThan(names.length);
    for (const error of failed) expect(error).toBeInstanceOf(EngineError);
    await dead.restart();
    for (const name of names) await locks.mutex(name).run({ timeout: '20s' }, () => {});
  });
});

describe('a password', () => {
  let guarded: Server;
  let folder: string;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-auth-'));
    const file = join(folder, 'users');
    writeFileSync(file, `app:${PASSWORD}\n`);
    guarded = await startMemcached({ args: ['-Y', file] });
  });

  afterAll(async () => {
    await guarded.stop();
    rmSync(folder, { recursive: true });
  });

  const login = (words: string): string => `memcached://${words}127.0.0.1:${guarded.port}`;

  test('lets us in', async () => {
    await using locks = new Holdfast(login(`app:${PASSWORD}@`), { ttl: TTL_MS });
    await locks.mutex('job').run((lease) => lease.assertHeld());
  });

  test.each([
    ['wrong', 'app:wrong-password@', 'refuses the user or the password'],
    ['missing', '', 'unauthenticated'],
  ])('that is %s: an EngineError at once, which says so and does not show it', async (_how, words, message) => {
    await using locks = new Holdfast(login(words), { ttl: TTL_MS });
    const error = await failureOf(locks.mutex('job').acquire({ timeout: '20s' }));
    expect(error).toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: false });
    const shown = inspect(error, { depth: 10, showHidden: true });
    expect(shown).toContain(message);
    expect(shown).not.toContain('wrong-password');
  });

  test('is not kept by a server that did not ask for one', async () => {
    await using locks = new Holdfast(`memcached://app:${PASSWORD}@127.0.0.1:${server.port}`, { ttl: TTL_MS });
    await locks.mutex('open').run((lease) => lease.assertHeld());
    expect(await ask(server.port, 'mg auth v\r\n')).toBe('EN\r\n');
  });
});

describe('processes', () => {
  test('close() leaves no socket and no lock', async () => {
    await using own = await startMemcached();
    const connections = async (): Promise<number> =>
      Number(/curr_connections (\d+)/.exec(await ask(own.port, 'stats\r\n'))?.[1]);
    // The server may not have noticed yet that earlier ones who asked have gone: two in a row must agree.
    let before = await connections();
    await until('nobody else is connected', async () => {
      const earlier = before;
      before = await connections();
      return before === earlier;
    });
    const locks = user(own.port);
    await locks.mutex('kept').acquire();
    await until('ours is there, and no other', async () => (await connections()) === before + 1);
    await locks.close();
    await until('the connection is gone', async () => (await connections()) === before);
    expect(await stored(own.port, 'kept')).toBeUndefined();
  });

  test('one that has locks, but waits for none, may end', async () => {
    const child = spawn(process.execPath, [CHILD, 'holding', urlOf(server.port)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [output] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    expect(output).toBe('done\n');
  });

  test('one that waits for a lock lives until it has it', async () => {
    await ask(server.port, 'ms holdfast:awaited 5 ME T600\r\nother\r\n');
    const child = fork(CHILD, ['waiting', urlOf(server.port)], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
    const output = text(child.stdout!);
    await once(child, 'message');
    // From here on nothing but its wait keeps it. It has asked many times before it gets it.
    child.disconnect();
    const asked = async (): Promise<number> =>
      Number((await ask(server.port, 'mg holdfast:%token v\r\n')).split('\r\n')[1]);
    const before = await asked();
    await until('it has asked ten times', async () => (await asked()) >= before + 10);
    expect(child.exitCode).toBeNull();
    await ask(server.port, 'md holdfast:awaited\r\n');
    await once(child, 'exit');
    expect(await output).toBe('done\n');
  });

  test('eight of them count to 800 together, with a file that protects nothing', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-count-'));
    const file = join(folder, 'count');
    writeFileSync(file, '0');
    const workers = Array.from({ length: 8 }, () => new Worker());
    try {
      await Promise.all(
        workers.map(async (worker) => {
          await worker.ask('open', { url: urlOf(server.port), ttl: '10s' });
          await worker.ask('count', { name: 'count', file, times: 100 });
        }),
      );
      expect(readFileSync(file, 'utf8')).toBe('800');
    } finally {
      await Promise.all(workers.map((worker) => worker.end()));
      rmSync(folder, { recursive: true });
    }
  });
});
