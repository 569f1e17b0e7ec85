/**
 * The link between a follower and the leader hangs, and nobody has noticed yet. The follower still answers its clients, pings
 * and reads, in the name of sessions that the leader has ended. A client that goes by that believes to hold what another
 * holds; it stands here as the control. We do not go by that.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Holdfast } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { startZooKeeperEnsemble, type ZooKeeperEnsemble } from '../../servers/zookeeper.js';
import { clientOf, queued, until, urlOf } from './kit.js';

let ensemble: ZooKeeperEnsemble;
const links = new Map<string, FaultProxy>();

beforeAll(async () => {
  ensemble = await startZooKeeperEnsemble({
    link: async (from, to, port) => {
      const proxy = await FaultProxy.start(port);
      links.set(`${from}→${to}`, proxy);
      return proxy.port;
    },
    // So long may a follower not hear from its leader before it gives it up: with the defaults, too, longer than a session.
    config: { syncLimit: 30 },
  });
});

afterAll(async () => {
  await ensemble[Symbol.asyncDispose]();
  for (const proxy of links.values()) await proxy[Symbol.asyncDispose]();
});

test('whoever goes by pings believes to hold what another holds; we know before the other is granted', async () => {
  const leader = await ensemble.leader();
  const follower = ensemble.members.find((member) => member !== leader)!;
  const seat = (member: typeof leader): number => ensemble.members.indexOf(member) + 1;
  const link = links.get(`${seat(follower)}→${seat(leader)}`)!;
  await using locks = new Holdfast(urlOf(follower), { ttl: '4s' });
  await using others = new Holdfast(urlOf(leader));
  await using control = await clientOf(follower, { timeoutMs: 4_000 });
  await using judge = await clientOf(leader);
  const { path } = await control.create('/control-', { mode: 'ephemeral-sequential' });
  const lease = await locks.mutex('link').acquire();
  const waiting = others.mutex('link').acquire();
  await queued(others.mutex('link'), 1);
  link.set({ mode: 'freeze' });
  const next = await waiting;
  expect(lease.held).toBe(false);
  expect(next.held).toBe(true);
  await until('the leader has ended the control’s session too', async () => (await judge.exists(path)) === undefined);
  // Its server answers, and shows it a node that is gone: two believers.
  expect((await control.exists(path))?.ephemeralOwner).toBe(control.sessionId);
  expect(control.attached).toBe(true);
  expect(next.held).toBe(true);
  link.heal();
  await next.release();
  await (await locks.mutex('link').acquire()).release();
});

test('with other servers to go to, we leave the one that hangs on its leader, and keep the lock', async () => {
  const leader = await ensemble.leader();
  const [follower, other] = ensemble.members.filter((member) => member !== leader);
  const seat = (member: typeof leader): number => ensemble.members.indexOf(member) + 1;
  const link = links.get(`${seat(follower!)}→${seat(leader)}`)!;
  await using locks = new Holdfast(urlOf(follower!, other!, leader), { ttl: '9s' });
  const lease = await locks.mutex('left').acquire();
  link.set({ mode: 'freeze' });
  const start = lease.remaining + performance.now();
  await until('beats get through elsewhere', () => lease.remaining + performance.now() > start + 9_000);
  expect(lease.state).toBe('held');
  link.heal();
  expect(await lease.release()).toBe(true);
});
