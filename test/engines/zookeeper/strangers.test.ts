/** What others write beside us: nodes of any name and any data. Nobody loses a lock by it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ZooKeeperClient } from '../../../src/engines/zookeeper/client/client.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import type { Server } from '../../servers/server.js';
import { startZooKeeper } from '../../servers/zookeeper.js';
import { clientOf, queued, renewed, standing, until, urlOf } from './kit.js';

let server: Server;
let client: ZooKeeperClient & AsyncDisposable;

beforeAll(async () => {
  server = await startZooKeeper();
  client = await clientOf(server);
});

afterAll(async () => {
  await client?.close();
  await server?.stop();
});

async function put(path: string, data = 'x'): Promise<void> {
  await client.make(path.slice(0, path.lastIndexOf('/')), 'persistent');
  await client.create(path, { data: Buffer.from(data), mode: 'persistent' });
}

/** Names of nodes that nobody of ours or of Curator makes. */
const STRAYS = [
  ...['stray', '%zz', '%E0%A4%A', '_c_', '_c_x-lock-', '_c_x-lock-12', '_c_x-lock-9999999999', 'lock-99999999999'],
  ...['_c_x-permit-0-of-2-0000000000', '_c_x-permit-3-of-2-0000000001', '_c_x-permit-1-of-99999999999-0000000002'],
  `_c_${'9'.repeat(700)}-lock-0000000000`,
  `_c_x-permit-1-of-${'9'.repeat(700)}-0000000000`,
];

describe('nodes of others among the claims', () => {
  test('of a mutex are passed over by those who wait, try, list and evict', async () => {
    for (const stray of STRAYS) await put(`/holdfast/lock/mutex/${stray}`);
    await using one = new Holdfast(urlOf(server));
    await using other = new Holdfast(urlOf(server));
    const first = await one.mutex('mutex').tryAcquire();
    expect(first?.held).toBe(true);
    const waiting = other.mutex('mutex').acquire();
    await queued(one.mutex('mutex'), 1);
    expect(await first!.release()).toBe(true);
    const second = await waiting;
    const [claim] = (await one.mutex('mutex').inspect()).claims;
    expect(await one.evict('mutex', claim!.id, 'enough')).toBe(true);
    await until('it is evicted', () => !second.held);
    // Its leave may be on its way still.
    await until('nothing of it is left', async () => (await standing(one.mutex('mutex'))).held === 0);
  });

  test('of a semaphore are passed over too', async () => {
    for (const stray of STRAYS) await put(`/holdfast/semaphore/pool/${stray}`);
    await using one = new Holdfast(urlOf(server));
    const first = await one.semaphore('pool', 2).acquire({ timeout: '20s' });
    const second = await one.semaphore('pool', 2).tryAcquire();
    expect(second?.held).toBe(true);
    expect(await one.semaphore('pool', 2).tryAcquire()).toBeUndefined();
    await first.release();
    await second!.release();
  });

  test('and what is written into claims, are not listed for more than they are', async () => {
    await put(
      '/list/lock/mutex/_c_x-lock-0000000000',
      JSON.stringify({ note: '{}', name: 'mutex', since: 1, token: '9'.repeat(900_000) }),
    );
    await put('/list/lock/other/_c_x-lock-0000000000', '9'.repeat(900_000));
    for (const stray of ['%1b', '%zz', 'a%2fb', '%2e']) await put(`/list/lock/${stray}/_c_x-lock-0000000000`);
    await using locks = new Holdfast(urlOf(server), { namespace: 'list' });
    const seen: Record<string, number> = {};
    for await (const line of locks.inspect()) seen[line.name] = JSON.stringify(line).length;
    expect(Object.keys(seen).toSorted()).toEqual(['mutex', 'other']);
    for (const length of Object.values(seen)) expect(length).toBeLessThan(1_000);
  });

  test('with a register’s name are an EngineError, and stay as they are', async () => {
    await using locks = new Holdfast(urlOf(server));
    const lease = await locks.mutex('values').acquire();
    await put('/holdfast/register/values');
    for (const value of ['x', '{}', 'null', `{"token":"${'9'.repeat(900_000)}"}`]) {
      await client.setData('/holdfast/register/values', Buffer.from(value));
      await expect(locks.register('values').set('mine', lease)).rejects.toThrow(EngineError);
    }
  });

  test('in the mailbox of a session cost it nothing', async () => {
    await using locks = new Holdfast(urlOf(server), { namespace: 'mail' });
    const lease = await locks.mutex('kept').acquire();
    const [id] = (await client.getChildren('/mail/session')).names;
    const mailbox = `/mail/session/${id}`;
    for (const letters of [
      'x',
      '{}',
      '[1]',
      '[["a"]]',
      '[[1,2]]',
      `[["a","${'9'.repeat(900_000)}"]]`,
      '['.repeat(900_000),
    ]) {
      await client.setData(mailbox, Buffer.from(letters));
      await until('it is read', async () => (await client.getData(mailbox)).data.toString() === '[]');
    }
    await client.delete(mailbox);
    await renewed(lease);
    await until('it is there again', async () => (await client.exists(mailbox)) !== undefined);
    expect(await lease.release()).toBe(true);
  });
});
