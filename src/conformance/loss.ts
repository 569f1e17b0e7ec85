import assert from 'node:assert/strict';
import { type Lease, LeaseLostError, type LossReason } from '../index.js';
import { BRIEF_HOLD_MS, type Case, listing } from './case.js';
import { claimIds } from './stage.js';
import { aborted, gate, track } from './tracked.js';

/** A loss is told in time, in every way, and never by an exception out of `release`. */
export const loss: readonly Case[] = [
  {
    name: 'after a stall the lease is lost: held, state, remaining, signal, assertHeld, release and run all say so',
    async run(stage) {
      const stopped = stage.stallable();
      const lease = await stopped.locks.mutex(stage.name()).acquire();
      const { signal } = lease;
      const inside = gate();
      const done = gate();
      const run = track(
        // Near: what is far may have a validity of its own.
        stopped.locks.mutex(stage.nameNear(lease.name)).run(async () => {
          inside.open();
          await done.opened;
          return 'resolved, but too late';
        }),
      );
      await inside.opened;
      // A beat that is late is jeopardy, until the next one.
      await stage.eventually('the lease is held', () => lease.state === 'held');
      assert.ok(lease.remaining > 0 && lease.remaining <= stage.shortTtlMs, `${lease.remaining}`);
      stopped.stall();
      await stage.eventually('held is false, though no timer runs', () => !lease.held);
      assert.equal(lease.state, 'lost');
      assert.equal(lease.remaining, 0);
      assert.equal(signal.aborted, false, 'to look changes nothing');
      assert.throws(
        () => lease.assertHeld(),
        (error) => assertLost(error, lease, UNASKED),
      );
      assert.equal(await lease.release(), false);
      assert.equal(await lease.release(), false);
      assert.equal(lease.state, 'lost');
      assert.equal(signal.aborted, true);
      assertLost(signal.reason, lease, UNASKED);
      done.open();
      await assert.rejects(run.promise, LeaseLostError);
    },
  },
  {
    name: 'a stopped holder that goes on is told, takes nothing from the one who came after it, and may ask again',
    async run(stage) {
      const name = stage.name();
      const stopped = stage.stallable();
      const lease = await stopped.locks.mutex(name).acquire();
      const told = aborted(lease.signal);
      stopped.stall();
      const next = await stage.holdfast().mutex(name).acquire();
      stopped.resume();
      // Nobody has looked at the lease until now: its signal aborts by itself.
      assertLost(await told, lease, UNASKED);
      assert.equal(await lease.release(), false);
      assert.equal(await stopped.locks.mutex(name).tryAcquire(), undefined);
      assert.equal(await stage.holdfast().mutex(name).tryAcquire(), undefined);
      assert.equal(next.held, true);
      assert.equal(await next.release(), true);
      const again = await stopped.locks.mutex(name).acquire();
      assert.ok(again.token > next.token);
      assert.equal(lease.held, false, 'a lost lease is never revived');
    },
  },
  {
    name: 'the function’s own error wins over the loss, which becomes its cause where it has none',
    async run(stage) {
      const locks = stage.holdfast();
      const failing = (error: Error): Promise<never> =>
        locks.mutex(stage.name()).run({ maxHold: BRIEF_HOLD_MS }, async (lease) => {
          await aborted(lease.signal);
          throw error;
        });
      const bare = new Error('disk full');
      await assert.rejects(failing(bare), (error) => error === bare && bare.cause instanceof LeaseLostError);
      const caused = new Error('disk full', { cause: 'quota' });
      await assert.rejects(failing(caused), (error) => error === caused && caused.cause === 'quota');
    },
  },
  {
    name: 'an error of a run whose lease was held to the end gets no cause',
    async run(stage) {
      const name = stage.name();
      const thrown = new Error('no such order');
      const run = stage
        .holdfast()
        .mutex(name)
        .run(() => Promise.reject(thrown));
      await assert.rejects(run, (error) => error === thrown && thrown.cause === undefined);
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true, 'it was released nevertheless');
    },
  },
  {
    name: 'maxHold gives the lock back by itself, and the lease is lost with that reason',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const lease = await a.acquire({ maxHold: 50 });
      const next = await b.acquire();
      assert.equal(lease.held, false);
      assert.equal(lease.state, 'lost');
      assertLost(lease.signal.reason, lease, ['maxHold']);
      assert.equal(await lease.release(), false);
      assert.ok(next.token > lease.token);
      await next.release();
      await assert.rejects(
        a.run({ maxHold: BRIEF_HOLD_MS }, ({ signal }) => aborted(signal)),
        (error) => error instanceof LeaseLostError && error.reason === 'maxHold',
      );
    },
  },
  {
    name: 'maxHold of a lease that was released in time does nothing to the next',
    async run(stage) {
      const lock = stage.holdfast().mutex(stage.name());
      const first = await lock.acquire({ maxHold: BRIEF_HOLD_MS });
      await first.release();
      const second = await lock.acquire();
      // A maxHold that began later, and is over: the first one's time has passed as well.
      const later = await stage.holdfast().mutex(stage.name()).acquire({ maxHold: BRIEF_HOLD_MS });
      await aborted(later.signal);
      assert.equal(second.held, true);
      assert.equal(first.state, 'released');
    },
  },
  {
    name: 'release gives the same answer every time, and the second takes nothing from the next holder',
    async run(stage) {
      const name = stage.name();
      const [a, b, c] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const lease = await a.acquire();
      assert.deepEqual(await Promise.all([lease.release(), lease.release()]), [true, true]);
      const next = await b.acquire();
      assert.equal(await lease.release(), true);
      assert.equal(await c.tryAcquire(), undefined);
      assert.equal(next.held, true);
    },
  },
  {
    name: 'a released lease is over, but not lost: its signal does not abort',
    async run(stage) {
      const lease = await stage.holdfast().mutex(stage.name()).acquire();
      const { signal } = lease;
      await lease.release();
      assert.equal(lease.held, false);
      assert.equal(lease.state, 'released');
      assert.equal(lease.remaining, 0);
      assert.equal(signal.aborted, false);
      assert.throws(
        () => lease.assertHeld(),
        (error) => assertLost(error, lease, ['released']),
      );
    },
  },
  {
    name: 'the end of an `await using` block releases',
    async run(stage) {
      const name = stage.name();
      {
        await using lease = await stage.holdfast().mutex(name).acquire();
        assert.equal(lease.held, true);
      }
      assert.equal((await stage.holdfast().mutex(name).tryAcquire())?.held, true);
    },
  },
  {
    name: 'a waiter whose session died while it was stopped stands in line again and is served',
    needs: listing,
    async run(stage) {
      const name = stage.name();
      const holder = stage.holdfast().mutex(name);
      const stopped = stage.stallable();
      const lease = await holder.acquire();
      const waiter = track(stopped.locks.mutex(name).acquire());
      await stage.queued(holder, 1);
      const [, oldClaim] = await claimIds(holder);
      stopped.stall();
      await stage.eventually('its claim is gone', async () => !(await claimIds(holder)).includes(oldClaim!));
      stopped.resume();
      await stage.queued(holder, 1);
      assert.equal(waiter.state, 'pending');
      await lease.release();
      assert.equal((await waiter.promise).held, true);
    },
  },
];

/** How a loss that nobody asked for may be called; which of them depends on what the engine notices first. */
const UNASKED: readonly LossReason[] = ['expired', 'session', 'connection'];

function assertLost(error: unknown, lease: Lease, reasons: readonly LossReason[]): true {
  assert.ok(error instanceof LeaseLostError, String(error));
  assert.equal(error.code, 'HOLDFAST_LOST');
  assert.equal(error.lock, lease.name);
  assert.equal(error.token, lease.token);
  assert.ok(reasons.includes(error.reason), error.reason);
  return true;
}
