import assert from 'node:assert/strict';
import { type Case, every, fifo, listing, shared, weighted } from './case.js';
import { claimIds } from './stage.js';
import { track } from './tracked.js';

/**
 * A dead process's claims, held and waiting, are out of every line within one ttl; nobody else's are.
 *
 * Those who wait here have long ttls, so they must hear of a death without a beat of their own.
 */
export const expiry: readonly Case[] = [
  {
    name: 'a stopped holder’s lock goes to the next, who has a larger token, and by then the holder knows',
    async run(stage) {
      const name = stage.name();
      const stopped = stage.stallable();
      const lock = stage.holdfast().mutex(name);
      const old = await stopped.locks.mutex(name).acquire();
      stopped.stall();
      const lease = await lock.acquire();
      assert.equal(old.held, false, 'two believe to hold it');
      assert.equal(lease.held, true);
      assert.ok(lease.token > old.token);
    },
  },
  {
    name: 'everything that a stopped instance held is freed: many locks at once',
    async run(stage) {
      const names = Array.from({ length: 20 }, () => stage.name());
      const stopped = stage.stallable();
      const locks = stage.holdfast();
      for (const name of names) await stopped.locks.mutex(name).acquire();
      stopped.stall();
      const leases = await locks.all(names.map((name) => locks.mutex(name))).acquire();
      assert.equal(leases.held, true);
    },
  },
  {
    name: 'permits of a stopped holder are freed',
    needs: weighted,
    async run(stage) {
      const name = stage.name();
      const stopped = stage.stallable();
      const alive = stage.holdfast().semaphore(name, 3);
      await stopped.locks.semaphore(name, 3).acquire({ permits: 2 });
      const held = await alive.acquire();
      stopped.stall();
      assert.equal((await alive.acquire({ permits: 2 })).held, true);
      assert.equal(held.held, true);
    },
  },
  {
    name: 'a stopped reader does not keep writers out for longer than its ttl',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const stopped = stage.stallable();
      const reader = await stopped.locks.rwLock(name).read.acquire();
      stopped.stall();
      const writer = await stage.holdfast().rwLock(name).write.acquire();
      assert.equal(reader.held, false);
      assert.ok(writer.token > reader.token);
    },
  },
  {
    name: 'who only ever tries is not blocked by a holder that stopped',
    async run(stage) {
      const name = stage.name();
      const stopped = stage.stallable();
      const lock = stage.holdfast().mutex(name);
      // Its session is open after this: a first try takes longer, and the holder has only a short ttl.
      await lock.run(() => {});
      const old = await stopped.locks.mutex(name).acquire();
      assert.equal(await lock.tryAcquire(), undefined);
      stopped.stall();
      await stage.eventually('a try succeeds', async () => (await lock.tryAcquire()) !== undefined);
      assert.equal(old.held, false);
    },
  },
  {
    name: 'a stopped waiter leaves the line while the holder goes on, and is never granted',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const holder = stage.holdfast().mutex(name);
      const stopped = stage.stallable();
      const lease = await holder.acquire();
      const dead = track(stopped.locks.mutex(name).acquire());
      await stage.queued(holder, 1);
      const [, deadClaim] = await claimIds(holder);
      const alive = track(stage.holdfast().mutex(name).acquire());
      await stage.queued(holder, 2);
      stopped.stall();
      await stage.eventually('its claim is gone', async () => !(await claimIds(holder)).includes(deadClaim!));
      assert.equal(alive.state, 'pending');
      await lease.release();
      assert.equal((await alive.promise).held, true);
      assert.equal(dead.state, 'pending');
    },
  },
  {
    name: 'a stopped waiter that is granted before its death costs those behind it no more than a holder does',
    async run(stage) {
      const name = stage.name();
      const holder = stage.holdfast().mutex(name);
      const stopped = stage.stallable();
      const lease = await holder.acquire();
      const dead = track(stopped.locks.mutex(name).acquire());
      await stage.queued(holder, 1);
      const alive = track(stage.holdfast().mutex(name).acquire());
      await stage.queued(holder, 2);
      stopped.stall();
      await lease.release();
      assert.equal((await alive.promise).held, true);
      if (dead.state === 'fulfilled') assert.equal((await dead.promise).held, false, 'two believe to hold it');
    },
  },
  {
    name: 'a stopped waiter behind a stopped holder does not block those behind both',
    async run(stage) {
      const name = stage.name();
      const [first, second] = [stage.stallable(), stage.stallable()];
      const lock = stage.holdfast().mutex(name);
      const old = await first.locks.mutex(name).acquire();
      const dead = track(second.locks.mutex(name).acquire());
      await stage.queued(lock, 1);
      const alive = track(lock.acquire());
      await stage.queued(lock, 2);
      first.stall();
      second.stall();
      assert.equal((await alive.promise).held, true);
      assert.equal(old.held, false);
      if (dead.state === 'fulfilled') assert.equal((await dead.promise).held, false, 'two believe to hold it');
    },
  },
  {
    name: 'a living holder keeps its lock for longer than its ttl, and a living waiter its place',
    async run(stage) {
      const name = stage.name();
      const ttlMs = 3 * stage.shortTtlMs;
      const [holder, waiter] = [stage.holdfast({ ttl: ttlMs }), stage.holdfast({ ttl: ttlMs })];
      const lease = await holder.mutex(name).acquire();
      const waiting = track(waiter.mutex(name).acquire());
      await stage.queued(holder.mutex(name), 1);
      const validUntil = (): number => stage.now() + lease.remaining;
      const first = validUntil();
      await stage.eventually('validity has been renewed by more than a ttl', () => validUntil() > first + ttlMs);
      assert.equal(lease.state, 'held');
      assert.equal(waiting.state, 'pending');
      await lease.release();
      assert.equal((await waiting.promise).held, true);
    },
  },
];
