/** Three servers that agree by majority: whoever fails, a lock that is held stays held, and who waits is served. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Duration, EngineError, Holdfast, type Lease } from '../../../src/index.js';
import type { Server } from '../../servers/server.js';
import { queued, renewed, until } from '../../servers/lines.js';

interface Cluster extends AsyncDisposable {
  readonly members: readonly Server[];
  leader(): Promise<Server>;
  /** Every member that runs can serve. */
  settled(): Promise<void>;
}

interface Setup {
  readonly start: () => Promise<Cluster>;
  readonly urlOf: (...servers: readonly Server[]) => string;
  /** Long enough for this system to elect another leader before two thirds of it have passed. */
  readonly ttl: Duration;
  /** For what takes long. */
  readonly slowTest: typeof test | ReturnType<typeof test.runIf>;
}

interface Scene {
  readonly holder: Holdfast;
  readonly lease: Lease;
}

export function testCluster({ start, urlOf, ttl, slowTest }: Setup): void {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await start();
  });

  afterAll(() => cluster[Symbol.asyncDispose]());

  /** One holds and one waits while it happens; then the lease is still held, and goes to the one who waits. */
  async function heldThrough(name: string, fault: (scene: Scene) => Promise<void>): Promise<void> {
    const url = urlOf(...cluster.members);
    await using holder = new Holdfast(url, { ttl });
    await using waiter = new Holdfast(url, { ttl });
    const lease = await holder.mutex(name).acquire();
    const waiting = waiter.mutex(name).acquire();
    await queued(holder.mutex(name), 1);
    await fault({ holder, lease });
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
    const next = await waiting;
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
  }

  async function followers(): Promise<readonly Server[]> {
    const leader = await cluster.leader();
    return cluster.members.filter((member) => member !== leader);
  }

  test('the leader is killed', () =>
    heldThrough('killed', async ({ lease }) => {
      const leader = await cluster.leader();
      await leader.kill();
      await renewed(lease);
      await leader.restart();
      await cluster.settled();
    }));

  test('the leader is frozen', () =>
    heldThrough('frozen', async ({ lease }) => {
      const leader = await cluster.leader();
      await leader.pause();
      await renewed(lease);
      leader.resume();
      await cluster.settled();
    }));

  slowTest('followers are restarted, one after the other', () =>
    heldThrough('followers', async ({ lease }) => {
      for (const member of await followers()) {
        await member.restart();
        await cluster.settled();
      }
      await renewed(lease);
    }),
  );

  test('the majority is lost and regained: nobody is granted meanwhile, and who could not ask says so', () =>
    heldThrough('quorum', async ({ lease, holder }) => {
      const others = await followers();
      for (const member of others) await member.pause();
      await expect(holder.mutex('elsewhere').acquire({ timeout: '1s' })).rejects.toBeInstanceOf(EngineError);
      for (const member of others) member.resume();
      await cluster.settled();
      await renewed(lease);
    }));

  slowTest(
    'the majority is lost for longer than the ttl: the lease is lost by the clock, and all goes on afterwards',
    async () => {
      await using locks = new Holdfast(urlOf(...cluster.members), { ttl: '2s' });
      const lease = await locks.mutex('long').acquire();
      const others = await followers();
      for (const member of others) await member.kill();
      await until('the lease is lost', () => !lease.held);
      await Promise.all(others.map((member) => member.restart()));
      await cluster.settled();
      const again = await locks.mutex('long').acquire();
      expect(again.token).toBeGreaterThan(lease.token);
      await again.release();
    },
  );
}
