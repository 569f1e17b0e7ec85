import { networkInterfaces } from 'node:os';
import { describe, expect, test, vi } from 'vitest';
import { Network, whyNoNetwork } from './network.js';
import { ask } from './ports.js';
import { startSentinel } from './redis-sentinel.js';
import { startRedis } from './redis.js';
import { command, info, RedisConnection } from './resp.js';

const impossible = whyNoNetwork();
const PING = 'PING\r\n';
const PONG = '+PONG\r\n';
const ours = (): string[] => Object.keys(networkInterfaces()).filter((name) => name.startsWith(`hf${process.pid}-`));

/** What gets through takes less than a millisecond. */
const SILENCE_MS = 200;

describe.skipIf(impossible !== undefined)(`hosts of their own${impossible ? `: ${impossible}` : ''}`, () => {
  test('a server on a host is reached by its address, and by nobody when both directions are lost', async () => {
    await using network = await Network.start();
    const host = await network.host();
    await using redis = await startRedis({ host });
    expect(await ask(redis, PING)).toBe(PONG);
    await network.lose([host.address], [network.here.address]);
    await network.lose([network.here.address], [host.address]);
    await expect(ask(redis, PING, SILENCE_MS)).rejects.toThrow('no answer');
    await network.heal();
    expect(await ask(redis, PING)).toBe(PONG);
  });

  test('what is lost in one direction is carried out, and nobody hears of it', async () => {
    await using network = await Network.start();
    const [host, other] = [await network.host(), await network.host()];
    await using redis = await startRedis({ host, args: ['--repl-diskless-sync-delay', '0'] });
    await using replica = await startRedis({ host: other, args: ['--replicaof', redis.host, `${redis.port}`] });
    const linked = async (): Promise<unknown> => (await info(replica, 'INFO', 'replication')).get('master_link_status');
    await vi.waitFor(async () => expect(await linked()).toBe('up'), 30_000);
    using connection = await RedisConnection.open(redis);
    await connection.send('PING');
    await network.lose([host.address], [network.here.address]);
    const reply = connection.send('SET', 'a', 1);
    // Seen from a host whose way is open.
    await vi.waitFor(async () => expect(await command(replica, 'GET', 'a')).toBe('1'), 30_000);
    await network.heal();
    expect(await reply).toBe('OK');
  });

  test('a primary that is cut off its Sentinels is replaced, and serves who can reach it', async () => {
    await using network = await Network.start();
    await using sentinel = await startSentinel({ host: () => network.host() });
    const old = sentinel.primary;
    const others = [...sentinel.replicas, ...sentinel.sentinels].map(({ host }) => host);
    await network.lose([old.host], others);
    await network.lose(others, [old.host]);
    await vi.waitFor(async () => expect(await sentinel.currentPrimary()).not.toBe(old), 50_000);
    expect(await command(old, 'SET', 'a', 1)).toBe('OK');
    await network.heal();
    await sentinel.settled();
    await expect(command(old, 'SET', 'a', 1)).rejects.toThrow('READONLY');
  }, 150_000);

  test('nothing is left of it', async () => {
    {
      await using network = await Network.start();
      await network.host();
      expect(ours()).not.toEqual([]);
    }
    await vi.waitFor(() => expect(ours()).toEqual([]), 30_000);
  });
});
