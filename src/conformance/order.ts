import assert from 'node:assert/strict';
import { type Case, every, fifo, listing } from './case.js';
import type { Stage } from './stage.js';

/** Instances are served in the order in which they came; what an instance may pass among its own waiters is bounded. */
export const order: readonly Case[] = [
  {
    name: 'instances are served in the order in which they came',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const served: number[] = [];
      const holder = stage.holdfast().mutex(name);
      const lease = await holder.acquire();
      const runs: Promise<unknown>[] = [];
      for (let place = 1; place <= 5; place += 1) {
        runs.push(
          stage
            .holdfast()
            .mutex(name)
            .run(() => served.push(place)),
        );
        await stage.queued(holder, place);
      }
      await lease.release();
      await Promise.all(runs);
      assert.deepEqual(served, [1, 2, 3, 4, 5]);
    },
  },
  {
    name: 'without cohorts the order is strict, whoever’s waiters they are',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const served: string[] = [];
      const holder = stage.holdfast({ cohort: false }).mutex(name);
      const instances = { a: stage.holdfast({ cohort: false }), b: stage.holdfast({ cohort: false }) };
      const lease = await holder.acquire();
      const runs: Promise<unknown>[] = [];
      for (const who of ['a', 'b', 'a', 'a', 'b', 'a'] as const) {
        const turn = `${who}${runs.length}`;
        runs.push(instances[who].mutex(name).run(() => served.push(turn)));
        await stage.queued(holder, runs.length);
      }
      await lease.release();
      await Promise.all(runs);
      assert.deepEqual(served, ['a0', 'b1', 'a2', 'a3', 'b4', 'a5']);
    },
  },
  {
    name: 'waiters of one instance are served in the order of their calls',
    async run(stage) {
      const name = stage.name();
      const served: number[] = [];
      const lock = stage.holdfast().mutex(name);
      const lease = await stage.holdfast().mutex(name).acquire();
      const turns = Array.from({ length: 100 }, (_, turn) => turn);
      const runs = turns.map((turn) => lock.run(() => served.push(turn)));
      await lease.release();
      await Promise.all(runs);
      assert.deepEqual(served, turns);
    },
  },
  {
    name: 'an instance passes a lock among its own waiters for at most 64 turns while another waits',
    needs: every(fifo, listing),
    async run(stage) {
      const { served, bypass } = await passAmongOwn(stage, { waiters: 150, turn: () => {} });
      assert.equal(served[0], 'crowd', 'the crowd stood before the other');
      assert.ok(bypass <= 64, `${bypass} turns passed the other by`);
    },
  },
  {
    name: 'an instance passes a lock among its own waiters for a short time only while another waits',
    needs: every(fifo, listing),
    async run(stage) {
      // The budget of 50 ms is used up by the fourth turn. The turns alone would go on until the end.
      const { served, bypass } = await passAmongOwn(stage, { waiters: 50, turn: () => stage.sleep(15) });
      assert.equal(served[0], 'crowd', 'the crowd stood before the other');
      assert.ok(bypass <= 40, `${bypass} turns passed the other by`);
    },
  },
  {
    name: 'a try does not overtake those who wait',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const [a, b, c] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const lease = await a.acquire();
      const waiting = b.acquire();
      await stage.queued(a, 1);
      const [, overtaker] = await Promise.all([lease.release(), c.tryAcquire()]);
      assert.equal(overtaker, undefined);
      assert.equal((await waiting).held, true);
    },
  },
];

/** One holds, a crowd of one instance waits, then one of another. How many of the crowd come before the other? */
async function passAmongOwn(
  stage: Stage,
  { waiters, turn }: { waiters: number; turn: () => unknown },
): Promise<{ served: readonly string[]; bypass: number }> {
  const name = stage.name();
  const [holder, crowd, other] = [stage.holdfast(), stage.holdfast(), stage.holdfast()];
  const served: string[] = [];
  const lease = await holder.mutex(name).acquire();
  const runs = Array.from({ length: waiters }, () =>
    crowd.mutex(name).run(async () => {
      served.push('crowd');
      await turn();
    }),
  );
  await stage.queued(holder.mutex(name), 1);
  runs.push(other.mutex(name).run(() => void served.push('other')));
  await stage.queued(holder.mutex(name), 2);
  await lease.release();
  await Promise.all(runs);
  assert.equal(served.length, waiters + 1, 'everybody is served');
  return { served, bypass: served.indexOf('other') };
}
