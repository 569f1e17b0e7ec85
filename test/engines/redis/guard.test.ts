/** A server that lost its memory does not know the ttl of who still believes in a lock: the guard is as long as its users say. */
import { expect, test } from 'vitest';
import { redis } from '../../../src/engines/redis/index.js';
import { ConfigError, Holdfast } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { connect, urlOf } from './faults-kit.js';

test.each(['by URL', 'on a client'])(
  'of two ttls the longer counts, %s: who comes after a crash holds nothing while the one from before believes that it does',
  async (how) => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.start(server.port);
    // It holds at once, though the server is young: only what comes after the crash is asked here.
    await using before = new Holdfast(urlOf(proxy.port), { ttl: '6s' });
    const lease = await before.mutex('job').acquire();
    proxy.set({ mode: 'freeze' });
    await server.kill();
    await server.restart();
    expect(lease.held).toBe(true);
    using client = connect(server.port);
    const source =
      how === 'by URL' ? `redis://${LOOPBACK}:${server.port}?epochGuard=6s` : redis(client, { epochGuard: '6s' });
    await using after = new Holdfast(source, { ttl: '500ms' });
    const next = await after.mutex('job').acquire({ timeout: '60s' });
    expect(lease.held).toBe(false);
    expect(next.token).toBeGreaterThan(lease.token);
    await before.close({ drain: 0 });
  },
);

test('a guard that is no duration is refused when it is given', async () => {
  using client = connect(1);
  for (const wrong of ['6', 'soon', '-1s', ''])
    expect(() => new Holdfast(`redis://localhost?epochGuard=${wrong}`), wrong).toThrow(ConfigError);
  for (const wrong of ['soon', -1, Number.NaN, {}])
    expect(() => redis(client, { epochGuard: wrong as number })).toThrow(ConfigError);
});
