/** Promises of the Redis Cluster and of the Sentinels that other tests rely on. */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isFree } from './ports.js';
import { isRunning } from './processes.js';
import { type RedisCluster, slotOf, startCluster } from './redis-cluster.js';
import { type RedisSentinel, startSentinel } from './redis-sentinel.js';
import { command, info, RedisConnection } from './resp.js';
import { startRedis } from './redis.js';
import type { Server } from './server.js';
import { startGroup } from './server-group.js';

/** The first run downloads; a slow mirror is not a failure. */
const DOWNLOAD_MS = 300_000;

describe('a Redis Cluster', () => {
  let cluster: RedisCluster;
  const key = '{jobs}:1';
  const slot = slotOf(key);

  beforeAll(async () => {
    cluster = await startCluster();
  }, DOWNLOAD_MS);

  afterAll(async () => {
    await cluster[Symbol.asyncDispose]();
    await expectGone(cluster.nodes);
  });

  test('serves every slot from three primaries with a replica each', async () => {
    const [first] = cluster.nodes;
    const state = await info(first?.port ?? 0, 'CLUSTER', 'INFO');
    expect(state.get('cluster_slots_ok')).toBe('16384');
    expect(state.get('cluster_known_nodes')).toBe('6');
    expect(state.get('cluster_size')).toBe('3');
    expect(cluster.hosts.map(({ port }) => port)).toEqual(cluster.nodes.map(({ port }) => port));
    const primary = await cluster.primaryOf(slot);
    const replica = await cluster.replicaOf(slot);
    expect((await info(replica.port, 'INFO', 'replication')).get('master_port')).toBe(`${primary.port}`);
    expect(await command(primary.port, 'SET', key, 1)).toBe('OK');
    await expect(command(replica.port, 'SET', key, 1)).rejects.toThrow(`MOVED ${slot} 127.0.0.1:${primary.port}`);
  });

  test.each(['a', 'foo{bar}baz', '{}x', 'foo{}{bar}', '{{bar}}', 'ü', ''])('has the slot of "%s"', async (name) => {
    expect(slotOf(name)).toBe(await command(cluster.nodes[0]?.port ?? 0, 'CLUSTER', 'KEYSLOT', name));
  });

  test('moves a slot with its keys, and asks for them half way', async () => {
    const from = await cluster.primaryOf(slot);
    const keys = ['{jobs}:a', '{jobs}:b', '{jobs}:c', key];
    for (const name of keys) await command(from.port, 'SET', name, `value of ${name}`);
    let answers: string[] = [];
    const to = await cluster.migrateSlot(slot, {
      during: async () => {
        answers = await Promise.all(keys.map((name) => command(from.port, 'GET', name).then(String, String)));
        await expect(command(from.port, 'MGET', ...keys)).rejects.toThrow('TRYAGAIN');
        await expect(command(from.port, 'SET', '{jobs}:new', 1)).rejects.toThrow(`ASK ${slot}`);
        const other = /ASK \d+ 127.0.0.1:(\d+)/.exec(answers.join())?.[1];
        using connection = await RedisConnection.open(Number(other));
        await connection.send('ASKING');
        expect(await connection.send('SET', '{jobs}:new', 'value of {jobs}:new')).toBe('OK');
      },
    });
    expect(answers.filter((answer) => answer.includes(`ASK ${slot} 127.0.0.1:${to.port}`))).toHaveLength(2);
    expect(answers.filter((answer) => answer.startsWith('value of'))).toHaveLength(2);
    expect(to).not.toBe(from);
    expect(await cluster.primaryOf(slot)).toBe(to);
    const all = [...keys, '{jobs}:new'];
    expect(await command(to.port, 'MGET', ...all)).toEqual(all.map((name) => `value of ${name}`));
    await expect(command(from.port, 'GET', key)).rejects.toThrow(`MOVED ${slot} 127.0.0.1:${to.port}`);
  });

  test('moves a slot to where it is wanted, also when what happens half way fails', async () => {
    const from = await cluster.primaryOf(slot);
    const to = await cluster.migrateSlot(slot);
    const failing = cluster.migrateSlot(slot, {
      to: from,
      keysFirst: 0,
      during: () => Promise.reject(new Error('half way')),
    });
    await expect(failing).rejects.toThrow('half way');
    expect(await cluster.primaryOf(slot)).toBe(from);
    expect(await command(from.port, 'GET', key)).toBe(`value of ${key}`);
    expect(to).not.toBe(from);
  });

  test('lets a replica take over when asked', async () => {
    const [before, replica] = [await cluster.primaryOf(slot), await cluster.replicaOf(slot)];
    expect(await cluster.failover(slot, 'manual')).toBe(replica);
    expect(await cluster.primaryOf(slot)).toBe(replica);
    expect(await cluster.replicaOf(slot)).toBe(before);
    expect(await command(replica.port, 'GET', key)).toBe(`value of ${key}`);
  });

  test('lets a replica take over from a primary that crashed, which comes back as a replica', async () => {
    const [before, replica] = [await cluster.primaryOf(slot), await cluster.replicaOf(slot)];
    expect(await cluster.failover(slot, 'kill')).toBe(replica);
    expect(before.running).toBe(false);
    expect(await command(replica.port, 'GET', key)).toBe(`value of ${key}`);
    await expect(cluster.replicaOf(slot)).rejects.toThrow('no replica');
    await before.restart();
    await cluster.settled();
    expect(await cluster.replicaOf(slot)).toBe(before);
  });
});

describe('Redis with Sentinels', () => {
  let sentinel: RedisSentinel;

  beforeAll(async () => {
    sentinel = await startSentinel({ args: ['--min-replicas-to-write', '1'] });
  }, DOWNLOAD_MS);

  afterAll(async () => {
    await sentinel[Symbol.asyncDispose]();
    await expectGone([sentinel.primary, ...sentinel.replicas, ...sentinel.sentinels]);
  });

  test('has a primary with two replicas and three Sentinels that name it', async () => {
    expect(sentinel.replicas).toHaveLength(2);
    expect(sentinel.hosts.map(({ port }) => port)).toEqual(sentinel.sentinels.map(({ port }) => port));
    expect(sentinel.sentinels).toHaveLength(3);
    expect(await sentinel.currentPrimary()).toBe(sentinel.primary);
    const state = await info(sentinel.primary.port, 'INFO', 'replication');
    expect(state.get('connected_slaves')).toBe('2');
    expect(await command(sentinel.primary.port, 'CONFIG', 'GET', 'min-replicas-to-write')).toContain('1');
  });

  test('elects another primary when it crashes, with the data it had', async () => {
    using connection = await RedisConnection.open(sentinel.primary.port);
    expect(await connection.send('SET', 'a', 1)).toBe('OK');
    expect(await connection.send('WAIT', 2, 5_000)).toBe(2);
    await sentinel.primary.kill();
    await sentinel.settled();
    const elected = await sentinel.currentPrimary();
    expect(sentinel.replicas).toContain(elected);
    expect(await command(elected.port, 'SET', 'b', 2)).toBe('OK');
    expect(await command(elected.port, 'GET', 'a')).toBe('1');
  });
});

describe('a group of servers', () => {
  test('is stopped when one of them does not start, or when what follows fails', async () => {
    const running: Server[] = [];
    const failing = startGroup(async (group) => {
      running.push(...(await group.add([startRedis(), startRedis()])));
      await group.add([startRedis().then((server) => (running.push(server), server)), Promise.reject(new Error('no'))]);
    });
    await expect(failing).rejects.toThrow('no');
    expect(running).toHaveLength(3);
    await expectGone(running);
  });
});

async function expectGone(servers: readonly Server[]): Promise<void> {
  for (const { pid, port, folder } of servers) {
    expect(isRunning(pid)).toBe(false);
    expect(await isFree(port)).toBe(true);
    expect(existsSync(folder)).toBe(false);
  }
}
