import assert from 'node:assert/strict';
import { ClosedError, ConfigError, LeaseLostError } from '../index.js';
import { type Case, listing } from './case.js';
import { aborted, gate, track } from './tracked.js';

/** An instance from its first word to its last. */
export const lifecycle: readonly Case[] = [
  {
    name: 'ready resolves when the engine has been reached, as often as one asks',
    async run(stage) {
      const locks = stage.holdfast();
      await Promise.all([locks.ready(), locks.ready()]);
      await locks.ready();
      assert.equal((await locks.mutex(stage.name()).tryAcquire())?.held, true);
    },
  },
  {
    name: 'close releases all that was held, at once, and tells it to the leases',
    async run(stage) {
      const names = [stage.name(), stage.name(), stage.name()];
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const leases = await Promise.all(names.map((name) => a.mutex(name).acquire()));
      const told = Promise.all(leases.map(({ signal }) => aborted(signal)));
      const waiting = b.mutex(names[0]!).acquire();
      await stage.queued(b.mutex(names[0]!), 1);
      await a.close();
      for (const reason of await told) assert.ok(reason instanceof LeaseLostError && reason.reason === 'released');
      for (const lease of leases) {
        assert.equal(lease.held, false);
        assert.equal(lease.remaining, 0);
        assert.throws(() => lease.assertHeld(), LeaseLostError);
        await assert.doesNotReject(lease.release());
      }
      assert.equal((await waiting).held, true);
      for (const name of names.slice(1)) assert.equal((await b.mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'close rejects what waits, and takes it out of the line',
    async run(stage) {
      const name = stage.name();
      const [holder, locks] = [stage.holdfast(), stage.holdfast()];
      const lease = await holder.mutex(name).acquire();
      const waiters = [1, 2, 3].map(() => track(locks.mutex(name).acquire()));
      await stage.queued(holder.mutex(name), 1);
      await locks.close();
      for (const { promise } of waiters) await assert.rejects(promise, ClosedError);
      // The closed instance can't be asked any more, so where lines can't be listed the next holder is the proof.
      if (stage.traits.listing) await stage.queued(holder.mutex(name), 0);
      await lease.release();
      assert.equal((await holder.mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'close rejects what has only just been asked for, and nothing of it stays',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const asked = track(a.mutex(name).acquire());
      const closed = a.close();
      await assert.rejects(asked.promise, ClosedError);
      await closed;
      await stage.eventually('the lock is free', async () => (await b.mutex(name).tryAcquire()) !== undefined);
    },
  },
  {
    name: 'after close every call is refused, and closing again is fine',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const lock = locks.mutex(name);
      await lock.run(() => {});
      await Promise.all([locks.close(), locks.close()]);
      await locks.close();
      await assert.rejects(lock.acquire(), ClosedError);
      await assert.rejects(lock.tryAcquire(), ClosedError);
      await assert.rejects(
        lock.run(() => assert.fail('it ran')),
        ClosedError,
      );
      await assert.rejects(locks.ready(), ClosedError);
    },
  },
  {
    name: 'after close looking is refused as well',
    needs: listing,
    async run(stage) {
      const locks = stage.holdfast();
      await locks.close();
      await assert.rejects(locks.mutex(stage.name()).inspect(), ClosedError);
      await assert.rejects(locks.evict(stage.name(), 'nobody-1'), ClosedError);
    },
  },
  {
    name: 'an instance that was never used closes, and so does the end of an `await using` block',
    async run(stage) {
      await stage.holdfast().close();
      const name = stage.name();
      {
        await using locks = stage.holdfast();
        await locks.mutex(name).acquire();
      }
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'closing one instance leaves the others of the same process alone',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const lease = await b.mutex(name).acquire();
      await a.mutex(stage.name()).acquire();
      await a.close();
      assert.equal(lease.held, true);
      assert.equal(await stage.holdfast().mutex(name).tryAcquire(), undefined);
      assert.equal(await lease.release(), true);
    },
  },
  {
    name: 'close waits for functions inside a run, with their locks kept, and serves what they ask for meanwhile',
    async run(stage) {
      const [name, second] = [stage.name(), stage.name()];
      const locks = stage.holdfast();
      const [inside, done] = [gate(), gate()];
      const run = track(
        locks.mutex(name).run(async (lease) => {
          inside.open();
          await done.opened;
          assert.equal(lease.held, true);
          return locks.mutex(second).run((inner) => inner.held);
        }),
      );
      await inside.opened;
      const closing = track(locks.close());
      await assert.rejects(locks.mutex(second).acquire(), ClosedError);
      assert.equal(await stage.holdfast().mutex(name).tryAcquire(), undefined);
      assert.equal(closing.state, 'pending');
      done.open();
      assert.equal(await run.promise, true);
      await closing.promise;
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'when the drain is over functions inside a run are told, and everything is released',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const inside = gate();
      const run = track(
        locks.mutex(name).run(async ({ signal }) => {
          inside.open();
          const reason = await aborted(signal);
          assert.ok(reason instanceof LeaseLostError && reason.reason === 'released');
        }),
      );
      await inside.opened;
      // The second call shortens what the first one allows.
      const closing = [locks.close(), locks.close({ drain: 0 })];
      await Promise.all(closing);
      await assert.rejects(run.promise, LeaseLostError);
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'a run that closes its own instance does not wait for itself, and keeps its lock until it ends',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const held = await locks.mutex(name).run(async (lease) => {
        await locks.close();
        assert.equal(await stage.holdfast().mutex(name).tryAcquire(), undefined);
        return lease.held;
      });
      assert.equal(held, true);
      await locks.close();
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'maxWaiters bounds how many acquires may wait',
    async run(stage) {
      const name = stage.name();
      const lease = await stage.holdfast().mutex(name).acquire();
      const lock = stage.holdfast({ maxWaiters: 2 }).mutex(name);
      const waiters = [lock.run(() => 1), lock.run(() => 2)];
      await assert.rejects(lock.acquire(), ConfigError);
      await lease.release();
      assert.deepEqual(await Promise.all(waiters), [1, 2]);
      assert.equal((await lock.acquire()).held, true, 'there is room again');
    },
  },
];
