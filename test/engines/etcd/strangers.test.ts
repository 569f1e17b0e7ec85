/** What others write beside us, and what an operator changes while we work: nobody loses a lock by it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CapacityError, EngineError, Holdfast } from '../../../src/index.js';
import { etcdctl, provideEtcdctl, startEtcd } from '../../servers/etcd.js';
import type { Server } from '../../servers/server.js';
import { clientOf, queued, renewed, standing, until, urlOf } from './kit.js';

/** For a busy machine: how long it takes is nobody's subject here. */
const CALLING = { withinMs: 20_000, repeatable: true };

let server: Server;

beforeAll(async () => {
  server = await startEtcd();
});

afterAll(() => server.stop());

async function put(key: string, value: string | Buffer = 'x'): Promise<void> {
  using client = clientOf(server);
  await client.txn({ success: [{ put: { key: Buffer.from(key), value: Buffer.from(value) } }] }, CALLING);
}

/** Last parts of keys that nobody of ours or of etcd's own libraries makes. */
const STRAYS = ['stray', '%zz', '%E0%A4%A', 'not-a-claim', 'a/b', '', 'deadbeef', '1-%zz', '-', 'ffff-', '\u{1b}[31m'];

describe('keys of others among the claims', () => {
  test('of a mutex are passed over by those who wait, try, list and evict', async () => {
    for (const stray of STRAYS) await put(`holdfast/lock/mutex/${stray}`);
    await using one = new Holdfast(urlOf(server));
    await using other = new Holdfast(urlOf(server));
    const first = await one.mutex('mutex').tryAcquire();
    expect(first?.held).toBe(true);
    expect(await other.mutex('mutex').tryAcquire()).toBeUndefined();
    const waiting = other.mutex('mutex').acquire();
    await queued(one.mutex('mutex'), 1);
    // Right before the next one in line.
    await put('holdfast/lock/mutex/later');
    const last = one.rwLock('mutex').read.acquire();
    await queued(one.mutex('mutex'), 2);
    await renewed(first!);
    expect(await first!.release()).toBe(true);
    const second = await waiting;
    expect(second.token).toBeGreaterThan(first!.token);
    await second.release();
    const reader = await last;
    const [claim] = (await other.mutex('mutex').inspect()).claims;
    expect(await other.evict('mutex', claim!.id, 'enough')).toBe(true);
    await until('it is evicted', () => !reader.held);
    // Its leave may be on its way still.
    await until('nothing of it is left', async () => (await standing(one.mutex('mutex'))).held === 0);
  });

  test('of a semaphore are passed over too, whatever capacity they seem to have', async () => {
    for (const stray of STRAYS) {
      await put(`holdfast/semaphore/pool/${stray}`);
      await put(`holdfast/semaphore/pool/2/${stray}`);
      await put(`holdfast/semaphore/pool/9/${stray}`);
      await put(`holdfast/semaphore/pool/1e3/1-${stray}`);
      await put(`holdfast/semaphore/pool/99999999999/1-a`);
    }
    await using one = new Holdfast(urlOf(server));
    await using other = new Holdfast(urlOf(server));
    const first = await one.semaphore('pool', 2).acquire({ timeout: '20s' });
    const second = await other.semaphore('pool', 2).tryAcquire();
    expect(second?.held).toBe(true);
    expect(await one.semaphore('pool', 2).tryAcquire()).toBeUndefined();
    const third = one.semaphore('pool', 2).acquire();
    await queued(other.semaphore('pool', 2), 1);
    await expect(other.semaphore('pool', 3).acquire({ timeout: '20s' })).rejects.toThrow(CapacityError);
    await expect(other.semaphore('pool', 3).acquire({ timeout: '20s' })).rejects.toThrow(/2 permits/);
    await first.release();
    await (await third).release();
    await second!.release();
    expect(await standing(one.semaphore('pool', 2))).toEqual({ held: 0, waiting: 0 });
  });

  test('are not listed, and do not hide those that are, however large they are', async () => {
    const fat = Buffer.alloc(1_000_000, '9');
    for (let at = 0; at < 8; at += 1) await put(`list/lock/fat/${at}`, fat);
    for (const stray of [...STRAYS, '%1b/1-a', '%', 'a%2fb/1-a', 'b/1']) await put(`list/lock/${stray}`);
    await using locks = new Holdfast(urlOf(server), { namespace: 'list' });
    const lease = await locks.mutex('zebra').acquire();
    const names: string[] = [];
    for await (const { name } of locks.inspect()) names.push(name);
    expect(names).toEqual(['zebra']);
    await lease.release();
  });

  test('with a register’s name are an EngineError, and stay as they are', async () => {
    await using locks = new Holdfast(urlOf(server));
    const lease = await locks.mutex('values').acquire();
    for (const value of ['x', '{}', '[]', 'null', '{"token":"9".repeat}', `{"token":"${'9'.repeat(900_000)}"}`]) {
      await put('holdfast/register/values', value);
      await expect(locks.register('values').set('mine', lease)).rejects.toThrow(EngineError);
    }
  });

  test('in the inbox of a session cost it nothing, and are removed', async () => {
    using client = clientOf(server);
    await using locks = new Holdfast(urlOf(server), { ttl: '3s', namespace: 'mail' });
    const lease = await locks.mutex('kept').acquire();
    const { kvs } = await client.range(
      { key: Buffer.from('mail/inbox/'), rangeEnd: Buffer.from('mail/inbox0') },
      CALLING,
    );
    const inbox = Buffer.from(kvs[0]!.key).toString();
    const fat = Buffer.alloc(1_400_000, '9');
    for (const stray of ['%E0%A4%A', '%zz', 'nobody', 'a/b', '\u{1b}']) await put(inbox + stray);
    for (let at = 0; at < 8; at += 1) await put(`${inbox}fat-${at}`, fat);
    await renewed(lease);
    await until('they are removed', async () => {
      const rest = { key: Buffer.from(inbox), rangeEnd: Buffer.from(`${inbox.slice(0, -1)}0`), keysOnly: true };
      return (await client.range(rest, CALLING)).kvs.length === 1;
    });
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
  });
});

describe('users that are switched on and off while locks are held', () => {
  test('cost nobody a lock, neither who holds nor who waits', async () => {
    await using own = await startEtcd();
    const program = provideEtcdctl();
    const ctl = (words: string): Promise<string> => etcdctl(program, own, ...words.split(' '));
    for (const words of [
      'user add root:secret',
      'user grant-role root root',
      'role add locks',
      'role grant-permission locks readwrite holdfast/ --prefix',
      'user add locks:secret',
      'user grant-role locks locks',
    ])
      await ctl(words);
    const url = urlOf(own).replace('://', '://locks:secret@');
    await using holder = new Holdfast(url, { ttl: '3s' });
    await using waiter = new Holdfast(url, { ttl: '3s' });
    // It does not beat in time, so what its watch misses it misses for good.
    await using late = new Holdfast(url, { ttl: '5m' });
    await late.ready();
    const kept = await holder.mutex('kept').acquire();
    let turn = await holder.mutex('passed').acquire();
    for (const [at, words] of ['auth enable', '--user root:secret auth disable', 'auth enable'].entries()) {
      const next = (at % 2 === 0 ? waiter : late).mutex('passed').acquire();
      await queued(holder.mutex('passed'), 1);
      await ctl(words);
      await renewed(kept);
      expect(turn.held).toBe(true);
      expect(await turn.release()).toBe(true);
      turn = await next;
    }
    expect(kept.held).toBe(true);
    expect(await turn.release()).toBe(true);
    expect(await kept.release()).toBe(true);
    // And who has no login is told what is missing.
    await using anonymous = new Holdfast(urlOf(own), { ttl: '3s' });
    await expect(anonymous.mutex('kept').acquire({ timeout: '20s' })).rejects.toMatchObject({ retryable: false });
  });
});
