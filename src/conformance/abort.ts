import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { AcquireTimeoutError, type Lease } from '../index.js';
import { type Case, every, fifo, listing } from './case.js';
import { BUSY_MS, type Stage } from './stage.js';
import { track } from './tracked.js';

/** Whoever gives up leaves the line, and nothing of it stays behind. */
export const abort: readonly Case[] = [
  {
    name: 'an aborted wait rejects with the signal’s own reason and leaves the line',
    async run(stage) {
      const { name, holder, lease } = await busy(stage);
      const giveUp = new AbortController();
      const waiter = track(stage.holdfast().mutex(name).acquire({ signal: giveUp.signal }));
      await stage.queued(holder, 1);
      const reason = new Error('the user closed the window');
      giveUp.abort(reason);
      await assert.rejects(waiter.promise, (error) => error === reason);
      await stage.queued(holder, 0);
      assert.equal(lease.held, true);
    },
  },
  {
    name: 'a signal that is aborted already rejects with its reason, and nothing is taken',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const reason = { why: 'not even an Error' };
      const signal = AbortSignal.abort(reason);
      await assert.rejects(a.acquire({ signal }), (error) => error === reason);
      await assert.rejects(a.tryAcquire({ signal }), (error) => error === reason);
      assert.equal((await b.tryAcquire())?.held, true);
    },
  },
  {
    name: 'an abort right after the call leaves nothing behind',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      for (let round = 0; round < 10; round += 1) {
        const giveUp = new AbortController();
        const waiter = track(a.acquire({ signal: giveUp.signal }));
        giveUp.abort();
        await assert.rejects(waiter.promise, { name: 'AbortError' });
      }
      await stage.eventually('the lock is free again', () => taken(b.tryAcquire()));
    },
  },
  {
    name: 'an abort in the moment of the grant either gives the lease or leaves nothing behind',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      for (let round = 0; round < 20; round += 1) {
        const lease = await a.acquire();
        const giveUp = new AbortController();
        const waiter = track(b.acquire({ signal: giveUp.signal }));
        await stage.queued(a, 1);
        const released = lease.release();
        if (round % 2 === 0) await released;
        giveUp.abort('enough');
        await released;
        const got = await waiter.promise.catch((error: unknown) => assert.equal(error, 'enough'));
        await got?.release();
      }
      await stage.eventually('the lock is free again', () => taken(a.tryAcquire()));
    },
  },
  {
    name: 'the signal cancels the wait only: after the grant it does nothing',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const giveUp = new AbortController();
      const lease = await a.acquire({ signal: giveUp.signal });
      giveUp.abort();
      assert.equal(await b.tryAcquire(), undefined);
      assert.equal(lease.held, true);
      assert.equal(lease.signal.aborted, false);
      assert.equal(await lease.release(), true);
    },
  },
  {
    name: 'a wait that runs out of time rejects with AcquireTimeoutError and leaves the line',
    async run(stage) {
      const { name, holder, lease } = await busy(stage);
      const lock = stage.holdfast().mutex(name);
      // The session is open after this, so the timeout below counts the wait and not the connection.
      assert.equal(await lock.tryAcquire(), undefined);
      await assert.rejects(lock.acquire({ timeout: BUSY_MS }), (error) => {
        assert.ok(error instanceof AcquireTimeoutError, String(error));
        assert.equal(error.code, 'HOLDFAST_TIMEOUT');
        assert.equal(error.lock, name);
        assert.equal(error.timeoutMs, BUSY_MS);
        return true;
      });
      await stage.queued(holder, 0);
      await lease.release();
      assert.equal((await lock.tryAcquire())?.held, true);
    },
  },
  {
    name: 'AcquireTimeoutError says who holds the lock and how many stood before us',
    needs: every(fifo, listing),
    async run(stage) {
      const { name, holder, lease } = await busy(stage, 'billing');
      const between = track(stage.holdfast().mutex(name).acquire());
      await stage.queued(holder, 1);
      const lock = stage.holdfast().mutex(name);
      assert.equal(await lock.tryAcquire(), undefined);
      // It says so if that can be had within the timeout, which on a busy machine may not be the first time.
      let told: AcquireTimeoutError | undefined;
      await stage.eventually('a timeout says who holds the lock', async () => {
        await assert.rejects(lock.acquire({ timeout: BUSY_MS }), (error) => {
          assert.ok(error instanceof AcquireTimeoutError, String(error));
          told = error;
          return true;
        });
        return told?.holder;
      });
      const { place, holder: holding, message } = told!;
      assert.equal(place, 2);
      assert.equal(holding?.token, lease.token);
      for (const part of ['billing', hostname(), String(process.pid)]) assert.ok(holding.label.includes(part));
      assert.ok(message.includes(name) && message.includes('billing'), message);
      assert.equal(between.state, 'pending');
    },
  },
  {
    name: 'timeout 0 is one try: it takes a free lock, and rejects at once on a busy one',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().mutex(name), stage.holdfast().mutex(name)];
      const lease = await a.acquire({ timeout: 0 });
      assert.equal(lease.held, true);
      for (const lock of [a, b]) {
        await assert.rejects(lock.acquire({ timeout: 0 }), (error) => {
          assert.ok(error instanceof AcquireTimeoutError, String(error));
          assert.equal(error.timeoutMs, 0);
          return true;
        });
      }
      await lease.release();
      assert.equal((await b.acquire({ timeout: 0 })).held, true);
    },
  },
  {
    name: 'aborted and timed-out waiters do not block those behind them, whoever’s they are',
    async run(stage) {
      const { name, holder, lease } = await busy(stage);
      const locks = [stage.holdfast({ cohort: false }).mutex(name), stage.holdfast({ cohort: false }).mutex(name)];
      const giveUp = new AbortController();
      const aborting = locks.map((lock) => track(lock.acquire({ signal: giveUp.signal })));
      await stage.queued(holder, 2);
      const timingOut = locks.map((lock) => track(lock.acquire({ timeout: BUSY_MS })));
      const staying = locks.map((lock) => lock.run(() => 'served'));
      for (const { promise } of timingOut) await assert.rejects(promise, AcquireTimeoutError);
      giveUp.abort();
      for (const { promise } of aborting) await assert.rejects(promise, { name: 'AbortError' });
      await stage.queued(holder, 2);
      await lease.release();
      assert.deepEqual(await Promise.all(staying), ['served', 'served']);
    },
  },
  {
    name: 'a waiter that leaves the middle of its instance’s own queue does not block the rest',
    async run(stage) {
      const { name, lease } = await busy(stage);
      const lock = stage.holdfast().mutex(name);
      const giveUp = new AbortController();
      const before = lock.run(() => 'before');
      const leaver = track(lock.acquire({ signal: giveUp.signal }));
      const after = lock.run(() => 'after');
      giveUp.abort();
      await assert.rejects(leaver.promise);
      await lease.release();
      assert.deepEqual(await Promise.all([before, after]), ['before', 'after']);
    },
  },
];

/** A lock that somebody holds. */
async function busy(stage: Stage, label = 'holder') {
  const name = stage.name();
  const holder = stage.holdfast({ label }).mutex(name);
  return { name, holder, lease: await holder.acquire() };
}

async function taken(tried: Promise<Lease | undefined>): Promise<boolean> {
  return (await tried)?.release() ?? false;
}
