import assert from 'node:assert/strict';
import { type HoldfastOptions, UnsupportedError } from '../index.js';
import { type Case, shared, weighted } from './case.js';
import type { Stage } from './stage.js';
import { answered, track } from './tracked.js';

/** While `lease.held` is true no other claim that does not fit beside it is granted. */
export const exclusion: readonly Case[] = [
  {
    name: 'one holder at a time, and every waiter is served, with many waiters in several instances',
    run: (stage) => crowd(stage, { instances: 4, waiters: 10 }),
  },
  {
    name: 'one holder at a time, and every waiter is served, where each waiter stands in line itself',
    run: (stage) => crowd(stage, { instances: 3, waiters: 5, options: { cohort: false } }),
  },
  {
    name: 'a waiter is granted when the holder releases, and not before',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const lease = await a.acquire();
      const waiter = track(b.acquire());
      await stage.queued(a, 1);
      assert.equal(waiter.state, 'pending');
      assert.equal(lease.held, true);
      assert.equal(await lease.release(), true);
      assert.equal((await waiter.promise).held, true);
    },
  },
  {
    name: 'a release in the very moment in which another of its instance comes to wait wakes that one',
    async run(stage) {
      const lock = stage.holdfast({ cohort: false }).mutex(stage.name());
      for (let round = 0; round < 5; round += 1) {
        const lease = await lock.acquire();
        const next = lock.acquire();
        const released = lease.release();
        await (await next).release();
        assert.equal(await released, true);
      }
    },
  },
  {
    name: 'a try is refused while another holds, be it of the same instance, and granted after the release',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const lease = await a.acquire();
      assert.equal(await a.tryAcquire(), undefined);
      assert.equal(await b.tryAcquire(), undefined);
      assert.equal(lease.held, true);
      await lease.release();
      assert.equal((await b.tryAcquire())?.held, true);
    },
  },
  {
    name: 'of many that try at once at most one gets it',
    async run(stage) {
      const name = stage.name();
      const instances = Array.from({ length: 5 }, () => stage.holdfast());
      await Promise.all(instances.map((locks) => locks.ready()));
      const tries = await Promise.all(instances.map((locks) => answered(locks.mutex(name).tryAcquire())));
      assert.ok(tries.filter((lease) => lease !== undefined).length <= 1);
    },
  },
  {
    name: 'a holder of one lock does not stand in the way of another',
    async run(stage) {
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const held = await a.mutex(stage.name()).acquire();
      assert.equal((await b.mutex(stage.name()).tryAcquire())?.held, true);
      assert.equal((await a.mutex(stage.name()).tryAcquire())?.held, true);
      assert.equal(held.held, true);
    },
  },
  {
    name: 'mutex, read lock and write lock of one name are one line',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const mutex = await a.mutex(name).acquire();
      assert.equal(await b.rwLock(name).read.tryAcquire(), undefined);
      assert.equal(await b.rwLock(name).write.tryAcquire(), undefined);
      await mutex.release();
      const reader = await b.rwLock(name).read.acquire();
      assert.equal(await a.mutex(name).tryAcquire(), undefined);
      await reader.release();
      assert.equal((await a.mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'a semaphore and a lock of one name are two lines',
    needs: weighted,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const mutex = await a.mutex(name).acquire();
      const permit = await b.semaphore(name, 1).tryAcquire();
      assert.equal(permit?.held, true);
      await mutex.release();
      assert.equal(await a.semaphore(name, 1).tryAcquire(), undefined);
    },
  },
  {
    name: 'what the engine can’t do throws UnsupportedError when the object is made, and nothing else does',
    async run(stage) {
      const locks = stage.holdfast();
      const { sharing, registers, listing } = stage.traits;
      const name = stage.name();
      assertMade(true, () => locks.mutex(name));
      assertMade(sharing !== 'exclusive', () => locks.rwLock(name));
      assertMade(sharing === 'weighted', () => locks.semaphore(name, 2));
      assertMade(registers, () => locks.register(name));
      assertMade(registers && listing, () => locks.election(name));
      assertMade(listing, () => locks.inspect());
      if (!registers)
        await assert.rejects(
          locks.once(name, {}, () => {}),
          UnsupportedError,
        );
      if (!listing) await assert.rejects(locks.evict(name, 'nobody'), UnsupportedError);
      if (!listing) await assert.rejects(locks.mutex(name).inspect(), UnsupportedError);
    },
  },
];

function assertMade(supported: boolean, make: () => unknown): void {
  if (supported) assert.doesNotThrow(make);
  else assert.throws(make, UnsupportedError);
}

async function crowd(
  stage: Stage,
  { instances, waiters, options }: { instances: number; waiters: number; options?: HoldfastOptions },
): Promise<void> {
  const name = stage.name();
  let inside = 0;
  let served = 0;
  const enter = async (): Promise<void> => {
    inside += 1;
    assert.equal(inside, 1, 'two are inside');
    await stage.breath();
    assert.equal(inside, 1, 'two are inside');
    inside -= 1;
    served += 1;
  };
  const runs = Array.from({ length: instances }, () => stage.holdfast(options).mutex(name)).flatMap((lock) =>
    Array.from({ length: waiters }, () =>
      lock.run(async (lease) => {
        await enter();
        lease.assertHeld();
      }),
    ),
  );
  await Promise.all(runs);
  assert.equal(served, instances * waiters);
}
