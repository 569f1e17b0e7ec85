/** The client by itself, on a real server: what it can ask for, and what it does when connections are lost. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CODE, ZooKeeperError } from '../../../src/engines/zookeeper/client/status.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import type { Server } from '../../servers/server.js';
import { startZooKeeper } from '../../servers/zookeeper.js';
import { clientOf, until, urlOf } from './kit.js';

let server: Server;

beforeAll(async () => {
  server = await startZooKeeper();
});

afterAll(() => server.stop());

describe('what can be asked for', () => {
  test('nodes of each kind, with their stats; ids and transactions are 64 bits wide', async () => {
    await using client = await clientOf(server);
    const data = Buffer.from('one');
    const { stat } = await client.create('/kinds', { data, mode: 'persistent' });
    expect(stat).toMatchObject({ version: 0, ephemeralOwner: 0n, dataLength: 3 });
    expect(typeof stat.czxid).toBe('bigint');
    expect(await client.getData('/kinds')).toMatchObject({ data, stat: { czxid: stat.czxid } });
    const changed = await client.setData('/kinds', Buffer.from('two'), 0);
    expect(changed.version).toBe(1);
    await expect(client.setData('/kinds', data, 0)).rejects.toMatchObject({ status: CODE.badVersion });
    await expect(client.delete('/kinds', 0)).rejects.toMatchObject({ status: CODE.badVersion });
    await expect(client.create('/kinds', { mode: 'persistent' })).rejects.toMatchObject({ status: CODE.nodeExists });
    await client.make('/kinds/deep/down', 'container');
    const first = await client.create('/kinds/deep/down/n-', { mode: 'ephemeral-sequential' });
    const second = await client.create('/kinds/deep/down/n-', { mode: 'ephemeral-sequential' });
    expect([first.path, second.path]).toEqual(['/kinds/deep/down/n-0000000000', '/kinds/deep/down/n-0000000001']);
    expect(first.stat.ephemeralOwner).toBe(client.sessionId);
    expect(second.stat.czxid).toBeGreaterThan(first.stat.czxid);
    expect((await client.getEphemerals()).sort()).toEqual([first.path, second.path]);
    const { names, stat: parent } = await client.getChildren('/kinds/deep/down');
    expect([names.length, parent.numChildren]).toEqual([2, 2]);
    expect(await client.exists('/nothing')).toBeUndefined();
    await client.sync();
  });

  test('several steps at once: all of them, or none', async () => {
    await using client = await clientOf(server);
    await client.create('/steps', { mode: 'persistent' });
    const make = { step: 'create', path: '/steps/a', mode: 'persistent' } as const;
    const set = { step: 'set', path: '/steps', data: Buffer.from('x') } as const;
    await expect(client.multi([make, { step: 'check', path: '/steps', version: 7 }])).rejects.toMatchObject({
      status: CODE.badVersion,
    });
    expect(await client.exists('/steps/a')).toBeUndefined();
    await client.multi([make, { ...set, version: 0 }, { step: 'check', path: '/steps', version: 1 }]);
    expect((await client.getData('/steps')).data.toString()).toBe('x');
    await client.multi([{ step: 'delete', path: '/steps/a' }]);
    expect((await client.getChildren('/steps')).names).toEqual([]);
  });

  test('everything lies under the chroot, which is made where it is not there', async () => {
    await using all = await clientOf(server);
    await using client = await clientOf(server, { chroot: '/under/here' });
    await client.make('/line', 'container');
    let told = 0;
    await client.getChildren('/line', () => (told += 1));
    const { path } = await client.create('/line/n-', { mode: 'ephemeral-sequential' });
    expect(path).toBe('/line/n-0000000000');
    await until('a watch under the chroot is told', () => told === 1);
    expect(await client.getEphemerals()).toEqual([path]);
    expect((await all.getChildren('/under/here/line')).names).toEqual(['n-0000000000']);
    await client.multi([{ step: 'delete', path }]);
    expect((await all.getChildren('/under/here/line')).names).toEqual([]);
    await using locks = new Holdfast(`${urlOf(server)}/under/there`);
    await using _lease = await locks.mutex('a').acquire();
    expect((await all.getChildren('/under/there/holdfast/lock/a')).names).toHaveLength(1);
  });

  test('with a user, what we make is for that user alone', async () => {
    const url = urlOf(server).replace('://', '://locks:secret@');
    await using locks = new Holdfast(`${url}/private`);
    await using lease = await locks.rwLock('a').write.acquire();
    await locks.register('a').set('value', lease);
    await lease.downgrade();
    const [claim] = (await locks.mutex('a').inspect()).claims;
    expect(await locks.evict('a', claim!.id, 'enough')).toBe(true);
    await until('it is evicted', () => !lease.held);
    await using stranger = await clientOf(server);
    await expect(stranger.getChildren('/private/holdfast/lock/a')).rejects.toMatchObject({ status: CODE.noAuth });
    await using same = await clientOf(server, { digest: 'locks:secret' });
    expect((await same.getChildren('/private/holdfast/lock')).names).toEqual(['a']);
    await using wrong = new Holdfast(`${url.replace('secret', 'hunter2')}/private`);
    const failure = await wrong
      .mutex('a')
      .acquire()
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(EngineError);
    expect(failure).toMatchObject({ retryable: false });
    expect(JSON.stringify(failure) + String((failure as Error).stack)).not.toContain('hunter2');
  });

  test('the servers decide how long a session lives, and the engine goes by that', async () => {
    await using own = await startZooKeeper({ config: { maxSessionTimeout: 3_000 } });
    await using client = await clientOf(own, { timeoutMs: 60_000 });
    expect(client.timeoutMs).toBe(3_000);
    await using locks = new Holdfast(urlOf(own), { ttl: '10m' });
    await using lease = await locks.mutex('a').acquire();
    expect(lease.remaining).toBeLessThanOrEqual(3_000);
  });
});

describe('connections', () => {
  test('one that is lost costs neither session nor watches, and what happened meanwhile is told', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using client = await clientOf(proxy);
    await using others = await clientOf(server);
    await others.create('/watched', { mode: 'persistent' });
    await others.create('/kept', { mode: 'persistent' });
    const told: string[] = [];
    const { sessionId } = client;
    const { path } = await client.create('/mine', { mode: 'ephemeral' });
    await client.getData('/watched', () => told.push('data'));
    await client.getChildren('/watched', () => told.push('children'));
    await client.getData('/kept', () => told.push('kept'));
    proxy.set({ mode: 'reset' });
    await others.setData('/watched', Buffer.from('changed'));
    await others.create('/watched/child', { mode: 'persistent' });
    proxy.heal();
    await until('both watches are told', () => told.length === 2);
    expect(told.sort()).toEqual(['children', 'data']);
    expect(client.sessionId).toBe(sessionId);
    expect((await others.exists(path))?.ephemeralOwner).toBe(sessionId);
    await others.setData('/kept', Buffer.from('changed'));
    await until('the one that had nothing to tell goes on', () => told.includes('kept'));
  });

  test('an answer that is lost is no answer: nothing is sent twice', async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using client = await clientOf(proxy);
    const lost = proxy.loseReplyOf((request) => request.includes('/once-'));
    const failure = await client.create('/once-', { mode: 'ephemeral-sequential' }).catch((error: unknown) => error);
    await lost;
    expect(failure).toBeInstanceOf(ZooKeeperError);
    expect(failure).toMatchObject({ status: CODE.connectionLoss, sent: true });
    expect(await client.getEphemerals()).toHaveLength(1);
  });

  test('a server that hangs is left, and taken back when it answers; a session that outlived its time is expired', async () => {
    await using own = await startZooKeeper();
    let expired = false;
    await using client = await clientOf(own, { timeoutMs: 12_000, listener: { expired: () => void (expired = true) } });
    await own.pause();
    await expect(client.sync()).rejects.toMatchObject({ status: CODE.connectionLoss });
    own.resume();
    await until('it serves again', () =>
      client.sync().then(
        () => true,
        () => false,
      ),
    );
    await using proxy = await FaultProxy.start(own.port);
    let gone = false;
    await using short = await clientOf(proxy, { timeoutMs: 3_000, listener: { expired: () => void (gone = true) } });
    await short.create('/short', { mode: 'ephemeral' });
    proxy.set({ mode: 'reset' });
    await until('the server has ended the session', async () => (await client.exists('/short')) === undefined);
    proxy.heal();
    await until('we are told', () => gone);
    await expect(short.sync()).rejects.toMatchObject({ status: CODE.sessionExpired });
    expect(expired).toBe(false);
  });
});
