/** `etcdctl lock NAME` and we exclude each other on the same key, whoever comes first. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { etcd } from '../../../src/engines/etcd/index.js';
import { Holdfast } from '../../../src/index.js';
import { provideEtcdctl, startEtcd } from '../../servers/etcd.js';
import type { Program } from '../../servers/provide.js';
import type { Server } from '../../servers/server.js';
import { queued, standing, until, urlOf } from './kit.js';

let server: Server;
let program: Program;

beforeAll(async () => {
  server = await startEtcd();
  program = provideEtcdctl();
});

afterAll(() => server.stop());

/** It prints its key when it holds, and gives it back when it is interrupted. */
class EtcdctlLock implements AsyncDisposable {
  readonly #child: ChildProcess;
  printed = '';

  constructor(name: string) {
    const { command, args, env } = program;
    this.#child = spawn(command, [...args, '--endpoints', `127.0.0.1:${server.port}`, 'lock', name], {
      env: { ...process.env, ...env, ETCDCTL_API: '3' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#child.stdout!.on('data', (text: Buffer) => (this.printed += text.toString()));
  }

  async holds(): Promise<void> {
    await until('etcdctl holds the lock', () => this.printed !== '');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGINT');
    await once(this.#child, 'exit');
  }
}

test('it waits while we hold, and holds when we release', async () => {
  await using locks = new Holdfast(urlOf(server));
  const lock = locks.mutex('ours-first');
  const lease = await lock.acquire();
  await using other = new EtcdctlLock('holdfast/lock/ours-first');
  await queued(lock, 1);
  expect(other.printed).toBe('');
  await lease.release();
  await other.holds();
  expect(other.printed).toMatch(/^holdfast\/lock\/ours-first\/[0-9a-f]+\n+$/);
  expect(await standing(lock)).toEqual({ held: 1, waiting: 0 });
});

test('we wait while it holds, refuse to try, and hold when it is gone, with a larger token', async () => {
  await using locks = new Holdfast(urlOf(server));
  const lock = locks.mutex('theirs-first');
  await using other = new EtcdctlLock('holdfast/lock/theirs-first');
  await other.holds();
  expect(await lock.tryAcquire()).toBeUndefined();
  expect(await locks.rwLock('theirs-first').read.tryAcquire()).toBeUndefined();
  const [theirs] = (await lock.inspect()).claims;
  expect(theirs).toMatchObject({ state: 'held', label: 'unknown' });
  const waiting = lock.acquire();
  await queued(lock, 1);
  await other[Symbol.asyncDispose]();
  const lease = await waiting;
  expect(lease.token).toBeGreaterThan(theirs!.token!);
  await lease.release();
});

test('it waits for our readers, and our readers behind it wait for it', async () => {
  await using locks = new Holdfast(urlOf(server));
  await using others = new Holdfast(urlOf(server));
  const { read } = locks.rwLock('readers');
  const lease = await read.acquire();
  await using other = new EtcdctlLock('holdfast/lock/readers');
  await queued(read, 1);
  expect(other.printed).toBe('');
  const behind = others.rwLock('readers').read.acquire();
  await queued(read, 2);
  await lease.release();
  await other.holds();
  expect(await standing(read)).toEqual({ held: 1, waiting: 1 });
  await other[Symbol.asyncDispose]();
  await (await behind).release();
});

test('keys may be the user’s own; then too, holding a/b does not block a', async () => {
  const source = etcd(urlOf(server), { key: (name) => `/services/${name}` });
  await using locks = new Holdfast(source);
  await using others = new Holdfast(source);
  const inner = await locks.mutex('a/b').acquire();
  await using outer = await others.mutex('a').acquire();
  expect(await others.mutex('a/b').tryAcquire()).toBeUndefined();
  expect(await locks.mutex('a').tryAcquire()).toBeUndefined();
  const waiting = locks.mutex('a').acquire();
  await queued(others.mutex('a'), 1);
  await outer.release();
  await using next = await waiting;
  expect((await others.mutex('a').inspect()).claims.map(({ token }) => token)).toEqual([next.token]);
  expect(await others.rwLock('a/b').read.tryAcquire()).toBeUndefined();
  await inner.release();
  await using _theirs = new EtcdctlLock('/services/a/b');
  await _theirs.holds();
  expect(await locks.mutex('a/b').tryAcquire()).toBeUndefined();
  await next.release();
  // Nobody stands in this line, though keys begin as its own do.
  expect((await locks.mutex('a').tryAcquire())?.held).toBe(true);
});

test('a name that we would not write so spoils no listing: nothing is known of it, and the others are shown', async () => {
  await using locks = new Holdfast(urlOf(server), { namespace: 'listed' });
  await using _lease = await locks.mutex('a').acquire();
  await using theirs = new EtcdctlLock('listed/lock/100%');
  await theirs.holds();
  const names: string[] = [];
  for await (const { name } of locks.inspect()) names.push(name);
  expect(names).toEqual(['a']);
});
