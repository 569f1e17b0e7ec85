import assert from 'node:assert/strict';
import { CapacityError, ConfigError, type Lock } from '../index.js';
import { type Case, every, fifo, group, listing, weighted } from './case.js';
import type { Stage } from './stage.js';
import { answered, track } from './tracked.js';

/** At most so many permits at a time, served in order whatever their weights. */
export const semaphore: readonly Case[] = group({ needs: weighted }, [
  {
    name: 'as many as there are permits hold at once, and one more waits',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().semaphore(name, 3), stage.holdfast().semaphore(name, 3)];
      const leases = [await a.acquire(), await b.acquire(), await a.acquire()];
      assert.ok(leases.every(({ held }) => held));
      assert.equal(await a.tryAcquire(), undefined);
      assert.equal(await b.tryAcquire(), undefined);
      const waiter = track(b.acquire());
      await stage.queued(a, 1);
      assert.equal(waiter.state, 'pending');
      await leases[1]!.release();
      assert.equal((await waiter.promise).held, true);
    },
  },
  {
    name: 'with many waiters in several instances the permits are never exceeded, and all are served',
    async run(stage) {
      const name = stage.name();
      let inside = 0;
      let served = 0;
      const instances = Array.from({ length: 3 }, () => stage.holdfast().semaphore(name, 4));
      const runs = instances.flatMap((semaphore) =>
        Array.from({ length: 10 }, (_, turn) => {
          const permits = 1 + (turn % 3);
          return semaphore.run({ permits }, async () => {
            inside += permits;
            assert.ok(inside <= 4, `${inside} permits of 4`);
            await stage.breath();
            inside -= permits;
            served += 1;
          });
        }),
      );
      await Promise.all(runs);
      assert.equal(served, runs.length);
    },
  },
  {
    name: 'of many that try for permits at once no more get them than there are',
    async run(stage) {
      // Of each semaphore at the same time: the more overlap, the more may meet between a look and an entry.
      const names = Array.from({ length: 6 }, () => stage.name());
      const instances = Array.from({ length: 5 }, () => stage.holdfast());
      await Promise.all(instances.map((locks) => locks.ready()));
      const tries = names.map((name) =>
        Promise.all(instances.map((locks) => answered(locks.semaphore(name, 2).tryAcquire()))),
      );
      for (const leases of await Promise.all(tries)) {
        const held = leases.filter((lease) => lease?.held).length;
        assert.ok(held <= 2, `${held} permits of 2`);
      }
    },
  },
  {
    name: 'permits weigh: what is left may be taken, and no more',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().semaphore(name, 4), stage.holdfast().semaphore(name, 4)];
      const heavy = await a.acquire({ permits: 3 });
      assert.equal(await b.tryAcquire({ permits: 2 }), undefined);
      const light = await b.tryAcquire({ permits: 1 });
      assert.equal(light?.held, true);
      assert.equal(await b.tryAcquire(), undefined);
      await heavy.release();
      assert.equal((await b.tryAcquire({ permits: 3 }))?.held, true);
    },
  },
  {
    name: 'one that waits for many permits is not overtaken by those who want few',
    needs: every(fifo, listing),
    async run(stage) {
      const [a, b, c] = threeInstances(stage, 2);
      const held = await a.acquire();
      const heavy = track(b.acquire({ permits: 2 }));
      await stage.queued(a, 1);
      assert.equal(await c.tryAcquire(), undefined, 'a permit is free, but somebody waits for it');
      const light = track(c.acquire());
      await stage.queued(a, 2);
      await held.release();
      const both = await heavy.promise;
      assert.equal(light.state, 'pending');
      await both.release();
      assert.equal((await light.promise).held, true);
    },
  },
  {
    name: 'waiters are served in the order in which they came, and as many at once as fit',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const sem = stage.holdfast().semaphore(name, 3);
      const held = await sem.acquire({ permits: 3 });
      const waiters = [];
      for (const permits of [1, 2, 2]) {
        waiters.push(track(stage.holdfast().semaphore(name, 3).acquire({ permits })));
        await stage.queued(sem, waiters.length);
      }
      await held.release();
      const [first, second] = await Promise.all([waiters[0]!.promise, waiters[1]!.promise]);
      await stage.queued(sem, 1);
      assert.equal(waiters[2]!.state, 'pending');
      await first.release();
      await stage.queued(sem, 1);
      assert.equal(waiters[2]!.state, 'pending', 'one permit is free, and it needs two');
      await second.release();
      assert.equal((await waiters[2]!.promise).held, true);
    },
  },
  {
    name: 'a waiter that gives up lets those behind it pass',
    needs: every(fifo, listing),
    async run(stage) {
      const [a, b, c] = threeInstances(stage, 2);
      const held = await a.acquire();
      const giveUp = new AbortController();
      const heavy = track(b.acquire({ permits: 2, signal: giveUp.signal }));
      await stage.queued(a, 1);
      const light = track(c.acquire());
      await stage.queued(a, 2);
      giveUp.abort();
      await assert.rejects(heavy.promise, { name: 'AbortError' });
      assert.equal((await light.promise).held, true);
      assert.equal(held.held, true);
    },
  },
  {
    name: 'another number of permits for a semaphore in use is a CapacityError, and holders are not disturbed',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const held = await a.semaphore(name, 2).acquire();
      for (const locks of [a, b]) {
        const wrong = locks.semaphore(name, 3);
        await assert.rejects(wrong.acquire(), (error) => assertCapacity(error, { lock: name, expected: 3, actual: 2 }));
        await assert.rejects(wrong.tryAcquire(), CapacityError);
      }
      assert.equal((await b.semaphore(name, 2).tryAcquire())?.held, true);
      assert.equal(held.held, true);
    },
  },
  {
    name: 'a new number of permits takes effect when nobody uses the old one any more',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      await (await a.semaphore(name, 2).acquire()).release();
      assert.equal((await b.semaphore(name, 3).acquire({ permits: 3 })).held, true);
    },
  },
  {
    name: 'permits that the semaphore can never give are a ConfigError',
    async run(stage) {
      const locks = stage.holdfast();
      const name = stage.name();
      for (const permits of [4, 0, -1, 1.5, Number.NaN]) {
        await assert.rejects(locks.semaphore(name, 3).acquire({ permits }), ConfigError, `${permits}`);
        await assert.rejects(locks.semaphore(name, 3).tryAcquire({ permits }), ConfigError, `${permits}`);
      }
      for (const size of [0, -1, 1.5, Number.NaN, 2 ** 31])
        assert.throws(() => locks.semaphore(name, size), ConfigError);
      await assert.rejects(locks.mutex(name).acquire({ permits: 1 }), ConfigError);
    },
  },
  {
    name: 'a semaphore of one permit is a mutex: its tokens grow',
    async run(stage) {
      const name = stage.name();
      const instances = [stage.holdfast(), stage.holdfast()];
      let newest = 0n;
      for (let turn = 0; turn < 6; turn += 1) {
        await instances[turn % 2]!.semaphore(name, 1).run(({ token }) => {
          assert.ok(token > newest, `${token} > ${newest}`);
          newest = token;
        });
      }
    },
  },
  {
    name: 'inside a run the permits of that run are shared, and no others are taken',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().semaphore(name, 3), stage.holdfast().semaphore(name, 3)];
      await a.run({ permits: 2 }, async (outer) => {
        const inner = await a.acquire({ permits: 2 });
        assert.equal(inner.token, outer.token);
        assert.equal((await b.tryAcquire())?.held, true);
        await inner.release();
      });
    },
  },
]);

/** One semaphore, as three instances have it. */
function threeInstances(stage: Stage, permits: number): readonly [Lock, Lock, Lock] {
  const name = stage.name();
  const semaphore = (): Lock => stage.holdfast().semaphore(name, permits);
  return [semaphore(), semaphore(), semaphore()];
}

function assertCapacity(error: unknown, wanted: { lock: string; expected: number; actual: number }): true {
  assert.ok(error instanceof CapacityError, String(error));
  const { code, lock, expected, actual } = error;
  assert.deepEqual({ code, lock, expected, actual }, { code: 'HOLDFAST_CAPACITY', ...wanted });
  return true;
}
