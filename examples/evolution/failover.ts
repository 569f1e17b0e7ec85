import { FaultProxy } from '../../test/servers/fault-proxy.js';
import { until } from '../../test/servers/lines.js';
import { LOOPBACK } from '../../test/servers/ports.js';
import { startRedis } from '../../test/servers/redis.js';
import { command, info } from '../../test/servers/resp.js';
import type { Server } from '../../test/servers/server.js';
import { Holdfast } from '../../src/index.js';
import { type Chapter, naiveCode } from './chapter.js';
import { aged, clientOf, TTL_MS } from './redis.js';
import type { Redis } from 'ioredis';

// #region naive
async function lock(redis: Redis, key: string, id: string, ttlMs: number): Promise<boolean> {
  return (await redis.set(key, id, 'PX', ttlMs, 'NX')) === 'OK'; // on the primary; the replica gets it a moment later
}
// #endregion

export const failover: Chapter = {
  word: 'failover',
  title: 'A failover to a replica that lacks the lock',
  tries:
    'One Redis may die, so it has a replica, and Sentinel or the cloud promotes that. The lock itself is as above.',
  code: naiveCode(import.meta.url),

  async naive(scene) {
    await using redis = await Replicated.start();
    using client = clientOf(redis.address);
    const [ada, ben, server] = scene.actors('Ada', 'Ben', 'Redis');
    redis.holdReplicationBack();
    await lock(client, 'order:42', 'ada', 30_000);
    ada!.enters('SET ada NX PX 30000 → OK');
    await redis.failOver();
    server!.does('primary dies, replica promoted');
    using bens = clientOf(redis.address);
    const taken = await lock(bens, 'order:42', 'ben', 30_000);
    ben!.enters('SET ben → OK');
    scene.broken(
      'The primary said OK before the replica had the key. It died, and Ben came in beside Ada.',
      [taken, scene.mostInside],
      [true, 2],
    );
  },

  async holdfast(scene) {
    await using redis = await Replicated.start();
    await Promise.all([aged(redis.primary, 2), aged(redis.replica, 2)]);
    const url = `redis://${LOOPBACK}:${redis.address.port}`;
    await using adas = new Holdfast(url, { ttl: TTL_MS, label: 'ada' });
    await using bens = new Holdfast(url, { ttl: TTL_MS, label: 'ben' });
    const [ada, ben, server] = scene.actors('Ada', 'Ben', 'Redis');
    // Locks have been used here before, so the replica knows the primary that it comes after.
    await adas.mutex('another').run(() => {});
    await redis.replicated();
    redis.holdReplicationBack();
    const lease = await adas.mutex('order:42').acquire();
    ada!.enters('acquire → a lease');
    let toldAt = Infinity;
    lease.signal.addEventListener('abort', () => {
      toldAt = performance.now();
      ada!.leaves('lease.signal aborts: she stops');
    });
    await redis.failOver();
    const failedOverAt = performance.now();
    server!.does('primary dies, replica promoted');
    ben!.waits('acquire → waits for the guard');
    const next = await bens.mutex('order:42').acquire();
    const grantedAt = performance.now();
    ben!.enters('is granted the lock');
    await next.release();
    const guardMs = Math.round(grantedAt - failedOverAt);
    scene.holds(
      `Each step looks whether the server is still the same. The new one granted nothing for ${guardMs} ms: at least one ttl.`,
      guardMs >= 0.9 * TTL_MS,
    );
    scene.holds(
      `Ada was told ${Math.round(grantedAt - toldAt)} ms before Ben was granted the lock.`,
      toldAt <= grantedAt,
    );
    scene.holds('Ben’s token is larger than Ada’s.', next.token > lease.token);
  },
};

/** A primary and its replica behind one address, as a cloud's endpoint is; `link` is their own connection. */
class Replicated implements AsyncDisposable {
  readonly primary: Server;
  readonly replica: Server;
  readonly address: FaultProxy;
  readonly #link: FaultProxy;

  static async start(): Promise<Replicated> {
    const primary = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] });
    const link = await FaultProxy.start(primary.port);
    const replica = await startRedis({ args: ['--replicaof', LOOPBACK, `${link.port}`] });
    await until('the replica has what the primary has', async () => {
      const replication = await info(replica.port, 'INFO', 'replication');
      return replication.get('master_link_status') === 'up';
    });
    return new Replicated(primary, replica, link, await FaultProxy.start(primary.port));
  }

  private constructor(primary: Server, replica: Server, link: FaultProxy, address: FaultProxy) {
    this.primary = primary;
    this.replica = replica;
    this.address = address;
    this.#link = link;
  }

  async replicated(): Promise<void> {
    await until('the replica has everything', async () => {
      return (await offsetOf(this.primary)) === (await offsetOf(this.replica));
    });
  }

  /** What is written from now on does not reach the replica any more. */
  holdReplicationBack(): void {
    this.#link.set({ mode: 'freeze' });
  }

  async failOver(): Promise<void> {
    await this.primary.kill();
    await command(this.replica.port, 'REPLICAOF', 'NO', 'ONE');
    this.address.retarget(this.replica.port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.address[Symbol.asyncDispose]();
    await this.#link[Symbol.asyncDispose]();
    await Promise.all([this.primary.stop(), this.replica.stop()]);
  }
}

async function offsetOf({ port }: Server): Promise<string | undefined> {
  return (await info(port, 'INFO', 'replication')).get('master_repl_offset');
}
