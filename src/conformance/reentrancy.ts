import assert from 'node:assert/strict';
import { ConfigError, DeadlockError, type Lease, LeaseLostError, type Lock } from '../index.js';
import { BRIEF_HOLD_MS, type Case, shared } from './case.js';
import { aborted, gate, track } from './tracked.js';

/** Inside a `run` the same lock is granted at once, without asking anybody; waits that can never end are refused. */
export const reentrancy: readonly Case[] = [
  {
    name: 'inside a run, run, acquire and a try of the same lock are granted with the same token',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      await locks.mutex(name).run(async (outer) => {
        await locks.mutex(name).run(async (inner) => {
          assert.equal(inner.token, outer.token);
          await locks.mutex(name).run(({ token }) => assert.equal(token, outer.token));
        });
        const lease = await locks.mutex(name).acquire();
        assert.equal(lease.token, outer.token);
        assert.equal(await lease.release(), true);
        const tried = await locks.mutex(name).tryAcquire();
        assert.equal(tried?.token, outer.token);
        assert.equal(await tried.release(), true);
        assert.equal(outer.held, true, 'an inner release leaves the outer lease alone');
        assert.equal(await stage.holdfast().mutex(name).tryAcquire(), undefined);
      });
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'siblings inside one run exclude each other',
    async run(stage) {
      const lock = stage.holdfast().mutex(stage.name());
      let inside = 0;
      let served = 0;
      const sibling = (): Promise<void> =>
        lock.run(async () => {
          inside += 1;
          assert.equal(inside, 1, 'two siblings are inside');
          await stage.breath();
          inside -= 1;
          served += 1;
        });
      await lock.run(() => Promise.all([sibling(), sibling(), sibling()]));
      assert.equal(served, 3);
    },
  },
  {
    name: 'acquire makes no frame: what follows it is not inside',
    async run(stage) {
      const lock = stage.holdfast().mutex(stage.name());
      const lease = await lock.acquire();
      assert.equal(await lock.tryAcquire(), undefined);
      assert.equal(lease.held, true);
    },
  },
  {
    name: 'within re-enters a lease by hand, with its token, and siblings there exclude each other too',
    async run(stage) {
      const lock = stage.holdfast().mutex(stage.name());
      const outer = await lock.acquire();
      const inner = await lock.acquire({ within: outer });
      assert.equal(inner.token, outer.token);
      assert.equal(await lock.tryAcquire({ within: outer }), undefined);
      assert.equal(await inner.release(), true);
      assert.equal(outer.held, true);
      assert.equal(await lock.run({ within: outer }, ({ token }) => token), outer.token);
    },
  },
  {
    name: 'within takes only a lease of the same lock that is not over',
    async run(stage) {
      const locks = stage.holdfast();
      const name = stage.name();
      const other = await locks.mutex(stage.name()).acquire();
      await assert.rejects(locks.mutex(name).acquire({ within: other }), ConfigError);
      const over = await locks.mutex(name).acquire();
      await over.release();
      await assert.rejects(locks.mutex(name).acquire({ within: over }), LeaseLostError);
    },
  },
  {
    name: 'a promise that outlives its run takes the real lock',
    async run(stage) {
      const name = stage.name();
      const lock = stage.holdfast().mutex(name);
      const later = gate();
      let detached!: Promise<Lease>;
      const outer = await lock.run((lease) => {
        detached = later.opened.then(() => lock.acquire());
        return lease;
      });
      const other = await stage.holdfast().mutex(name).acquire();
      const waiting = track(detached);
      later.open();
      await stage.queued(lock, 1);
      assert.equal(waiting.state, 'pending');
      await other.release();
      assert.ok((await detached).token > other.token);
      assert.ok(other.token > outer.token);
    },
  },
  {
    name: 'a run is over when the leases inside it are, also those that nobody awaited',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      let inner: Lease | undefined;
      const run = track(
        a.run(async () => {
          inner = await a.acquire();
        }),
      );
      await stage.eventually('the inner lease is there', () => inner);
      await stage.breath();
      assert.equal(await b.tryAcquire(), undefined);
      assert.equal(run.state, 'pending');
      assert.equal(inner!.held, true);
      assert.equal(await inner!.release(), true);
      await run.promise;
      assert.equal((await b.tryAcquire())?.held, true);
    },
  },
  {
    name: 'when the outer lease is lost the inner one is too, and nothing inside is granted any more',
    async run(stage) {
      const lock = stage.holdfast().mutex(stage.name());
      const run = lock.run({ maxHold: BRIEF_HOLD_MS }, async (outer) => {
        const inner = await lock.acquire();
        await aborted(outer.signal);
        assert.equal(inner.held, false);
        assert.equal(inner.signal.aborted, true);
        assert.equal(await inner.release(), false);
        await assert.rejects(lock.acquire(), LeaseLostError);
      });
      await assert.rejects(run, (error) => error instanceof LeaseLostError && error.reason === 'maxHold');
    },
  },
  {
    name: 'another instance is a stranger: inside a run its try of the same lock is refused',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      await a.mutex(name).run(async () => assert.equal(await b.mutex(name).tryAcquire(), undefined));
    },
  },
  {
    name: 'with reentrant: false an acquire inside its own run is refused with DeadlockError',
    async run(stage) {
      const name = stage.name();
      for (const cohort of [true, false]) {
        const lock = stage.holdfast({ reentrant: false, cohort }).mutex(name);
        await lock.run(async () => {
          await assert.rejects(lock.acquire(), (error) => assertCycle(error, [name]));
          await assert.rejects(lock.acquire({ timeout: '1h' }), (error) => assertCycle(error, [name]));
        });
        assert.equal(await lock.run(() => 'free again'), 'free again');
      }
    },
  },
  {
    name: 'with reentrant: false a try inside its own run is busy: it never waits, so it can’t deadlock',
    async run(stage) {
      const name = stage.name();
      for (const cohort of [true, false]) {
        const lock = stage.holdfast({ reentrant: false, cohort }).mutex(name);
        await lock.run(async () => assert.equal(await lock.tryAcquire(), undefined));
      }
    },
  },
  {
    name: 'a wait that closes a cycle inside the process is refused at once with DeadlockError, and the other goes on',
    async run(stage) {
      const locks = stage.holdfast();
      const [a, b] = [locks.mutex(stage.name()), locks.mutex(stage.name())];
      const bothHold = gate();
      let holding = 0;
      const nest = (outer: Lock, inner: Lock): Promise<string> =>
        outer.run(async () => {
          holding += 1;
          if (holding === 2) bothHold.open();
          await bothHold.opened;
          return inner.run(() => 'through');
        });
      const ends = await Promise.allSettled([nest(a, b), nest(b, a)]);
      const refused = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []));
      assert.equal(refused.length, 1, 'one is refused, and only one');
      const asked = ends[0].status === 'rejected' ? [b.name, a.name] : [a.name, b.name];
      assertCycle(refused[0], asked);
    },
  },
  {
    name: 'a cycle over three locks is found as well',
    async run(stage) {
      const locks = stage.holdfast();
      const ring = [0, 1, 2].map(() => locks.mutex(stage.name()));
      const allHold = gate();
      let holding = 0;
      const nests = ring.map((outer, at) =>
        outer.run(async () => {
          holding += 1;
          if (holding === ring.length) allHold.open();
          await allHold.opened;
          return ring[(at + 1) % ring.length]!.run(() => 'through');
        }),
      );
      const ends = await Promise.allSettled(nests);
      const refused = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []));
      assert.equal(refused.length, 1, 'one is refused, and only one');
      assert.ok(refused[0] instanceof DeadlockError);
      assert.deepEqual([...refused[0].cycle].sort(), ring.map(({ name }) => name).sort());
    },
  },
  {
    name: 'an upgrade from read to write is refused at once with DeadlockError, also where nobody else reads',
    needs: shared,
    async run(stage) {
      const { name, read, write } = stage.holdfast().rwLock(stage.name());
      await read.run(async (reader) => {
        await assert.rejects(write.acquire(), (error) => assertCycle(error, [name]));
        await assert.rejects(
          write.run(() => {}),
          DeadlockError,
        );
        assert.equal(reader.held, true);
      });
      assert.equal(await write.run(() => 'free again'), 'free again');
    },
  },
  {
    name: 'a read inside a write run is granted, with the writer’s token, and reads inside a read run share',
    needs: shared,
    async run(stage) {
      const { read, write } = stage.holdfast().rwLock(stage.name());
      await write.run(async (writer) => {
        const readers = await Promise.all([read.acquire(), read.acquire()]);
        for (const reader of readers) assert.equal(reader.token, writer.token);
        for (const reader of readers) await reader.release();
        await write.run(({ token }) => assert.equal(token, writer.token));
      });
      await read.run(async (reader) => {
        const [first, second] = await Promise.all([read.acquire(), read.acquire()]);
        assert.equal(first.token, reader.token);
        assert.equal(second.token, reader.token);
        await first.release();
        await second.release();
      });
    },
  },
];

function assertCycle(error: unknown, cycle: readonly string[]): true {
  assert.ok(error instanceof DeadlockError, String(error));
  assert.equal(error.code, 'HOLDFAST_DEADLOCK');
  assert.deepEqual(error.cycle, cycle);
  return true;
}
