import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { FaultProxy } from '../../test/servers/fault-proxy.js';
import { until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { lock } from './owned-key.js';
import { clientOf, emptied, holdfastOn, isGone } from './redis.js';

// #region naive
const RENEW = `
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 0`;

function watchdog(redis: Redis, key: string, id: string, ttlMs: number): () => void {
  const timer = setInterval(() => void redis.eval(RENEW, 1, key, id, ttlMs), ttlMs / 3);
  return () => clearInterval(timer);
}
// #endregion

const NAIVE_TTL_MS = 900;

export const watchdogChapter: Chapter = {
  word: 'watchdog',
  title: 'A watchdog that renews the lock',
  tries:
    'Work may take longer than the expiry. So a timer renews it, every third of it, for as long as the holder lives.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    await using wire = await FaultProxy.start(server.port);
    using adas = clientOf(wire);
    using bens = clientOf(server);
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await lock(adas, 'order:42', 'ada', NAIVE_TTL_MS);
    ada!.enters(`SET ada NX PX ${NAIVE_TTL_MS} → OK`);
    const stop = watchdog(adas, 'order:42', 'ada', NAIVE_TTL_MS);
    await sleep(1.5 * NAIVE_TTL_MS);
    const early = await lock(bens, 'order:42', 'ben', 30_000);
    ben!.waits('after her expiry: SET → nil');
    wire.set({ mode: 'freeze' });
    ada!.does('her network hangs, she works on');
    await isGone(bens, 'order:42');
    const taken = await lock(bens, 'order:42', 'ben', 30_000);
    ben!.enters('expired: SET → OK');
    wire.heal();
    await adas.ping();
    ada!.does('the watchdog gets 0, tells nobody');
    stop();
    scene.holds('Ada worked for longer than her expiry, and Ben was refused.', early, false);
    scene.leavesOpen(
      'When renewals did not get through, Ben came in, and Ada was not told.',
      [taken, scene.mostInside],
      [true, 2],
    );
  },

  async holdfast(scene, servers) {
    const server = await servers.get('redis');
    await using wire = await FaultProxy.start(server.port);
    await using adas = holdfastOn(wire, 'ada');
    await using bens = holdfastOn(server, 'ben');
    const [ada, ben] = scene.actors('Ada', 'Ben');
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('acquire → a lease');
    let grantedAt = Infinity;
    const waits = bens.mutex('order:42').run(() => {
      grantedAt = performance.now();
      ben!.enters('is granted the lock');
    });
    ben!.waits('acquire → second in line');
    wire.set({ mode: 'freeze' });
    ada!.does('her network hangs, she works on');
    let toldAt = Infinity;
    lease.signal.addEventListener('abort', () => {
      toldAt = performance.now();
      ada!.leaves('lease.signal aborts: she stops');
    });
    await until('a beat has failed', () => lease.state !== 'held');
    ada!.does(`lease.state → ${lease.state}`);
    await waits;
    const earlierMs = Math.round(grantedAt - toldAt);
    wire.heal();
    scene.holds(
      `Ada was told ${earlierMs} ms before Ben was granted the lock. She needs no answer to know it: it is her own clock.`,
      earlierMs >= 0,
    );
    scene.holds('Never were two inside.', scene.mostInside, 1);
  },
};
