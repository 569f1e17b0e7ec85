/** Three servers: whoever fails, a lock that is held stays held, and who waits is served. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EngineError, Holdfast, type Lease } from '../../src/index.js';
import { startZooKeeperEnsemble, type ZooKeeperEnsemble } from '../servers/zookeeper.js';
import { queued, renewed, until, urlOf } from './kit.js';

let ensemble: ZooKeeperEnsemble;

beforeAll(async () => {
  ensemble = await startZooKeeperEnsemble();
});

afterAll(() => ensemble[Symbol.asyncDispose]());

/** They take long: for `npm run test:matrix` only. */
const inMatrix = test.runIf(process.env['HOLDFAST_MATRIX'] !== undefined);

interface Scene {
  readonly holder: Holdfast;
  readonly lease: Lease;
}

/** One holds and one waits while it happens; then the lease is still held, and goes to the one who waits. */
async function heldThrough(name: string, fault: (scene: Scene) => Promise<void>): Promise<void> {
  const url = urlOf(...ensemble.members);
  await using holder = new Holdfast(url, { ttl: '12s' });
  await using waiter = new Holdfast(url, { ttl: '12s' });
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

test('the leader is killed', () =>
  heldThrough('killed', async ({ lease }) => {
    const leader = await ensemble.leader();
    await leader.kill();
    await renewed(lease);
    await leader.restart();
    await ensemble.settled();
  }));

test('the leader is frozen', () =>
  heldThrough('frozen', async ({ lease }) => {
    const leader = await ensemble.leader();
    await leader.pause();
    await renewed(lease);
    leader.resume();
    await ensemble.settled();
  }));

inMatrix('followers are restarted, one after the other', () =>
  heldThrough('followers', async ({ lease }) => {
    const leader = await ensemble.leader();
    for (const member of ensemble.members.filter((one) => one !== leader)) {
      await member.restart();
      await ensemble.settled();
    }
    await renewed(lease);
  }),
);

test('the majority is lost and regained: nobody is granted meanwhile, and who could not ask says so', () =>
  heldThrough('quorum', async ({ lease, holder }) => {
    const leader = await ensemble.leader();
    const others = ensemble.members.filter((one) => one !== leader);
    for (const member of others) await member.pause();
    await expect(holder.mutex('elsewhere').acquire({ timeout: '1s' })).rejects.toBeInstanceOf(EngineError);
    for (const member of others) member.resume();
    await ensemble.settled();
    await renewed(lease);
  }));

inMatrix(
  'the majority is lost for longer than the ttl: the lease is lost by the clock, and all goes on afterwards',
  async () => {
    await using locks = new Holdfast(urlOf(...ensemble.members), { ttl: '2s' });
    const lease = await locks.mutex('long').acquire();
    const leader = await ensemble.leader();
    const others = ensemble.members.filter((one) => one !== leader);
    for (const member of others) await member.kill();
    await until('the lease is lost', () => !lease.held);
    await Promise.all(others.map((member) => member.restart()));
    await ensemble.settled();
    const again = await locks.mutex('long').acquire();
    expect(again.token).toBeGreaterThan(lease.token);
    await again.release();
  },
);
