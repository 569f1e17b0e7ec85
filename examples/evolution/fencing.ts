import type { Redis } from 'ioredis';
import { fence } from '../../src/fence/index.js';
import { type Lease, StaleTokenError } from '../../src/index.js';
import { FaultProxy } from '../../test/servers/fault-proxy.js';
import { failureOf } from '../../test/engines/redis/faults-kit.js';
import { until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { clientOf, emptied, heldBack, holdfastOn } from './redis.js';

// #region naive
async function deposit(redis: Redis, lease: Lease, amount: number): Promise<void> {
  const balance = Number(await redis.get('{account:1}:balance'));
  lease.assertHeld(); // a right lock, and a look right before the write
  await redis.set('{account:1}:balance', `${balance + amount}`);
}
// #endregion

const BALANCE = '{account:1}:balance';

export const fencing: Chapter = {
  word: 'fencing',
  title: 'A right lock, and a pause after the last look',
  tries:
    'No lock can stop a holder that looked, found that it holds, and was frozen before it wrote. Here the lock is Holdfast’s own.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    await using wire = await FaultProxy.start(server.port);
    using adas = clientOf(wire);
    using bens = clientOf(server);
    await using adasLocks = holdfastOn(wire, 'ada');
    await using bensLocks = holdfastOn(server, 'ben');
    const [ada, ben] = scene.actors('Ada, +5', 'Ben, +10');
    await bens.set(BALANCE, '100');
    const lease = await adasLocks.mutex('account:1').acquire();
    ada!.enters('acquire, GET → 100');
    const freezes = (): void => {
      wire.set({ mode: 'freeze' }); // nothing of hers gets through, as if her process stood still
      ada!.freezes('lease.held → true, is frozen');
    };
    const write = deposit(heldBack(adas, 'set', freezes), lease, 5);
    await until('Ada is frozen', () => scene.steps.length === 2);
    const bensLease = await bensLocks.mutex('account:1').acquire();
    await deposit(bens, bensLease, 10);
    ben!.enters('acquire, GET → 100, SET 110 → OK');
    await bensLease.release();
    ben!.leaves('release');
    wire.heal();
    await write;
    ada!.leaves('wakes up: SET 105 → OK');
    const balance = await bens.get(BALANCE);
    scene.broken(
      `100 + 5 + 10 is ${balance}. Ben’s deposit is lost, though the lock was never broken.`,
      balance,
      '105',
    );
  },

  async holdfast(scene, servers) {
    const server = await emptied(await servers.get('redis'));
    await using wire = await FaultProxy.start(server.port);
    using adas = clientOf(wire);
    using bens = clientOf(server);
    await using adasLocks = holdfastOn(wire, 'ada');
    await using bensLocks = holdfastOn(server, 'ben');
    const [ada, ben] = scene.actors('Ada, +5', 'Ben, +10');
    await bens.set(BALANCE, '100');
    const lease = await adasLocks.mutex('account:1').acquire();
    const adasAccount = await fence(adas).open('account:1', lease);
    const before = Number(await adasAccount.get(BALANCE));
    ada!.enters('acquire, open, get → 100');
    wire.set({ mode: 'freeze' });
    const write = failureOf(adasAccount.set(BALANCE, `${before + 5}`));
    ada!.freezes('lease.held → true, is frozen');
    const bensLease = await bensLocks.mutex('account:1').acquire();
    const bensAccount = await fence(bens).open('account:1', bensLease);
    await bensAccount.set(BALANCE, `${Number(await bensAccount.get(BALANCE)) + 10}`);
    ben!.enters('acquire, open, get → 100, set 110');
    await bensLease.release();
    ben!.leaves('release');
    wire.heal();
    const error = await write;
    ada!.leaves('wakes up: set 105 → StaleTokenError');
    const balance = await bens.get(BALANCE);
    scene.holds(
      'The fence has been shown Ben’s token, which is larger, and refuses Ada’s.',
      error instanceof StaleTokenError,
    );
    scene.holds(`The balance is ${balance}. Ada knows that hers was not written, and may try again.`, balance, '110');
  },
};
