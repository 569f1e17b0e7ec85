import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { AcquireTimeoutError, ConfigError, type Holdfast, LeaseLostError, type Lock } from '../index.js';
import { BRIEF_HOLD_MS, type Case, shared, weighted } from './case.js';
import { BUSY_MS } from './stage.js';
import { aborted, track } from './tracked.js';

/** Several locks as one: in one order, all or none. */
export const all: readonly Case[] = [
  {
    name: 'all are held together, each with its own lease, and released together',
    async run(stage) {
      const names = [stage.name(), stage.name(), stage.name()];
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const locks = mutexes(a, names);
      const leases = await a.all(locks).acquire();
      assert.equal(leases.held, true);
      assert.ok(leases.remaining > 0);
      assert.deepEqual(
        locks.map((lock) => leases.of(lock).name),
        names,
      );
      for (const lock of mutexes(b, names)) assert.equal(await lock.tryAcquire(), undefined);
      assert.equal(await leases.release(), true);
      assert.equal(leases.held, false);
      assert.throws(() => leases.assertHeld(), LeaseLostError);
      for (const lock of mutexes(b, names)) assert.equal((await lock.tryAcquire())?.held, true);
    },
  },
  {
    name: 'a try takes all or none',
    async run(stage) {
      const names = [stage.name(), stage.name(), stage.name()];
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      for (const busy of names) {
        const held = await b.mutex(busy).acquire();
        assert.equal(await a.all(mutexes(a, names)).tryAcquire(), undefined);
        for (const free of names.filter((name) => name !== busy)) {
          assert.equal(await b.mutex(free).run(() => 'free'), 'free');
        }
        await held.release();
      }
      assert.equal((await a.all(mutexes(a, names)).tryAcquire())?.held, true);
    },
  },
  {
    name: 'one timeout counts for the whole, names the lock that was busy, and gives the others back',
    async run(stage) {
      const names = [stage.name(), stage.name()];
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const busy = await b.mutex(names[1]!).acquire();
      assert.equal(await a.mutex(names[1]!).tryAcquire(), undefined);
      await assert.rejects(a.all(mutexes(a, names)).acquire({ timeout: BUSY_MS }), (error) => {
        assert.ok(error instanceof AcquireTimeoutError, String(error));
        assert.equal(error.lock, names[1]);
        assert.equal(error.timeoutMs, BUSY_MS);
        return true;
      });
      // The engine may take longer to hear of it than the timeout may.
      assert.equal(await b.mutex(names[0]!).run(() => 'free'), 'free');
      assert.equal(busy.held, true);
    },
  },
  {
    name: 'an abort while it waits for one gives the others back',
    async run(stage) {
      // Other stages of this process have the same names, and what is heard below is said by all of them.
      const own = randomUUID();
      const names = [`${stage.name()} ${own}`, `${stage.name()} ${own}`];
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      await b.mutex(names[1]!).acquire();
      const giveUp = new AbortController();
      // Told, not only taken: the engine may have granted it before its answer is here, and then there is nothing to give back yet.
      const granted = new Set<string>();
      const hear = (message: unknown): void => void granted.add((message as { name: string }).name);
      subscribe('holdfast:granted', hear);
      const waiter = track(a.all(mutexes(a, names)).acquire({ signal: giveUp.signal }));
      await stage.eventually('the first is granted', async () => granted.has(names[0]!));
      unsubscribe('holdfast:granted', hear);
      giveUp.abort('enough');
      await assert.rejects(waiter.promise, (error) => error === 'enough');
      assert.equal((await b.mutex(names[0]!).tryAcquire())?.held, true);
    },
  },
  {
    name: 'those who name the same locks in other orders never wait for each other for ever',
    async run(stage) {
      const names = [stage.name(), stage.name(), stage.name()];
      const [x, y, z] = names as [string, string, string];
      let inside = 0;
      const runs = [
        [x, y, z],
        [z, y, x],
        [y, z, x],
      ].flatMap((order) => {
        const locks = stage.holdfast();
        return Array.from({ length: 4 }, () =>
          locks.all(mutexes(locks, order)).run(async (leases) => {
            inside += 1;
            assert.equal(inside, 1, 'two are inside');
            await stage.breath();
            leases.assertHeld();
            inside -= 1;
          }),
        );
      });
      await Promise.all(runs);
    },
  },
  {
    name: 'inside its run every one of the locks is re-entrant',
    async run(stage) {
      const locks = stage.holdfast();
      const [a, b] = [locks.mutex(stage.name()), locks.mutex(stage.name())];
      await locks.all([a, b]).run(async (leases) => {
        for (const lock of [a, b]) {
          assert.equal(await lock.run(({ token }) => token), leases.of(lock).token);
        }
        assert.equal(await locks.all([b, a]).run((inner) => inner.of(a).token), leases.of(a).token);
      });
    },
  },
  {
    name: 'the loss of one aborts the signal of all, and the run rejects',
    async run(stage) {
      const locks = stage.holdfast();
      const [a, b] = [locks.mutex(stage.name()), locks.mutex(stage.name())];
      const run = locks.all([a, b]).run({ maxHold: BRIEF_HOLD_MS }, async (leases) => {
        const reason = await aborted(leases.signal);
        assert.ok(reason instanceof LeaseLostError);
        assert.equal(leases.held, false);
      });
      await assert.rejects(run, LeaseLostError);
      assert.equal((await locks.all([a, b]).tryAcquire())?.held, true);
    },
  },
  {
    name: 'duplicates are merged into the stronger',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const { read, write } = locks.rwLock(name);
      const leases = await locks.all([read, locks.mutex(name), write, read]).acquire();
      assert.equal(leases.of(read).token, leases.of(write).token);
      assert.equal(await stage.holdfast().rwLock(name).read.tryAcquire(), undefined);
      assert.equal(await leases.release(), true);
    },
  },
  {
    name: 'locks of all kinds go together',
    needs: weighted,
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const [semaphore, mutex] = [locks.semaphore(name, 1), locks.mutex(name)];
      const leases = await locks.all([semaphore, mutex]).acquire();
      assert.equal(leases.held, true);
      const other = stage.holdfast();
      assert.equal(await other.semaphore(name, 1).tryAcquire(), undefined);
      assert.equal(await other.mutex(name).tryAcquire(), undefined);
    },
  },
  {
    name: 'no locks, locks of another instance, and leases of locks that are not among them are a ConfigError',
    async run(stage) {
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      assert.throws(() => a.all([]), ConfigError);
      assert.throws(() => a.all([a.mutex(stage.name()), b.mutex(stage.name())]), ConfigError);
      const leases = await a.all([a.mutex(stage.name())]).acquire();
      assert.throws(() => leases.of(a.mutex(stage.name())), ConfigError);
    },
  },
];

function mutexes(locks: Holdfast, names: readonly string[]): Lock[] {
  return names.map((name) => locks.mutex(name));
}
