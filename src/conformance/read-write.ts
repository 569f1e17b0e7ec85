import assert from 'node:assert/strict';
import { LeaseLostError, type Lease } from '../index.js';
import { BRIEF_HOLD_MS, type Case, every, fifo, group, listing, shared } from './case.js';
import { aborted, answered, track } from './tracked.js';

/** Readers share, writers exclude, and neither starves the other. */
export const readWrite: readonly Case[] = group({ needs: shared }, [
  {
    name: 'readers of several instances share',
    async run(stage) {
      const name = stage.name();
      const instances = Array.from({ length: 3 }, () => stage.holdfast().rwLock(name).read);
      const readers = await Promise.all([...instances, ...instances].map((read) => read.acquire()));
      assert.ok(readers.every(({ held }) => held));
      for (const read of instances) assert.equal((await read.tryAcquire())?.held, true);
    },
  },
  {
    name: 'readers of one instance that try at the same time share as well',
    async run(stage) {
      const { read } = stage.holdfast().rwLock(stage.name());
      const readers = await Promise.all([read.tryAcquire(), read.tryAcquire(), read.acquire(), read.tryAcquire()]);
      assert.deepEqual(
        readers.map((reader) => reader?.held),
        [true, true, true, true],
      );
    },
  },
  {
    name: 'a writer excludes readers and writers, and a reader excludes writers',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      const writer = await a.write.acquire();
      for (const { read, write } of [a, b]) {
        assert.equal(await read.tryAcquire(), undefined);
        assert.equal(await write.tryAcquire(), undefined);
      }
      await writer.release();
      const reader = await b.read.acquire();
      for (const { write } of [a, b]) assert.equal(await write.tryAcquire(), undefined);
      await reader.release();
      assert.equal((await a.write.tryAcquire())?.held, true);
    },
  },
  {
    name: 'with many readers and writers in several instances no writer is ever beside anybody',
    async run(stage) {
      const name = stage.name();
      let readers = 0;
      let writers = 0;
      let served = 0;
      const reading = async (): Promise<void> => {
        readers += 1;
        assert.equal(writers, 0, 'a reader is beside a writer');
        await stage.breath();
        readers -= 1;
        served += 1;
      };
      const writing = async (): Promise<void> => {
        writers += 1;
        assert.deepEqual({ readers, writers }, { readers: 0, writers: 1 });
        await stage.breath();
        writers -= 1;
        served += 1;
      };
      const runs = Array.from({ length: 3 }, () => stage.holdfast().rwLock(name)).flatMap(({ read, write }) =>
        Array.from({ length: 12 }, (_, turn) => (turn % 4 === 1 ? write.run(writing) : read.run(reading))),
      );
      await Promise.all(runs);
      assert.equal(served, runs.length);
    },
  },
  {
    name: 'of readers and writers that try at once no writer gets it beside anybody',
    async run(stage) {
      const names = Array.from({ length: 6 }, () => stage.name());
      const instances = Array.from({ length: 5 }, () => stage.holdfast());
      await Promise.all(instances.map((locks) => locks.ready()));
      const tries = names.map(async (name) => {
        const [first, second, ...others] = instances.map((locks) => locks.rwLock(name));
        const reading = others.map(({ read }) => answered(read.tryAcquire()));
        const writing = [first!, second!].map(({ write }) => answered(write.tryAcquire()));
        const readers = (await Promise.all(reading)).filter((lease) => lease?.held).length;
        const writers = (await Promise.all(writing)).filter((lease) => lease?.held).length;
        assert.ok(writers === 0 || writers + readers === 1, `${writers} writers beside ${readers} readers`);
      });
      await Promise.all(tries);
    },
  },
  {
    name: 'a waiting writer is not overtaken by readers that come later',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const [a, b, c] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      const early = await a.read.acquire();
      const writer = track(b.write.acquire());
      await stage.queued(a.read, 1);
      assert.equal(await c.read.tryAcquire(), undefined);
      const late = track(c.read.acquire());
      await stage.queued(a.read, 2);
      assert.equal(writer.state, 'pending');
      await early.release();
      const write = await writer.promise;
      assert.equal(late.state, 'pending');
      await write.release();
      assert.ok((await late.promise).token > write.token);
    },
  },
  {
    name: 'a waiting writer is not starved by readers of one instance that never stop coming',
    needs: fifo,
    async run(stage) {
      const name = stage.name();
      const { read } = stage.holdfast().rwLock(name);
      const { write } = stage.holdfast().rwLock(name);
      let reader: Lease = await read.acquire();
      const writer = track(write.run(() => 'written'));
      // Somebody always reads: the next is asked for before the last one goes.
      await stage.eventually('the writer is served', async () => {
        const next = read.acquire();
        await stage.breath();
        await reader.release();
        reader = await next;
        return writer.state === 'fulfilled';
      });
    },
  },
  {
    name: 'a waiting reader is not starved by writers of one instance that never stop coming',
    needs: fifo,
    async run(stage) {
      const name = stage.name();
      const { read } = stage.holdfast().rwLock(name);
      const { write } = stage.holdfast().rwLock(name);
      let writer: Lease = await write.acquire();
      const reader = track(read.run(() => 'read'));
      await stage.eventually('the reader is served', async () => {
        const next = write.acquire();
        await stage.breath();
        await writer.release();
        writer = await next;
        return reader.state === 'fulfilled';
      });
    },
  },
  {
    name: 'readers behind a writer are admitted together when it leaves',
    async run(stage) {
      const name = stage.name();
      const [a, b, c] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      const writer = await a.write.acquire();
      const waiting = [b, c, b].map(({ read }) => track(read.acquire()));
      await stage.queued(a.write, 2);
      assert.ok(waiting.every(({ state }) => state === 'pending'));
      await writer.release();
      const readers = await Promise.all(waiting.map(({ promise }) => promise));
      assert.ok(readers.every(({ held }) => held));
    },
  },
  {
    name: 'a downgrade admits waiting readers, has a larger token and ends the write lease',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      const writer = await a.write.acquire();
      const waiting = track(b.read.acquire());
      await stage.queued(a.write, 1);
      assert.equal(waiting.state, 'pending');
      const reader = await writer.downgrade();
      assert.equal(reader.held, true);
      assert.ok(reader.token > writer.token, `${reader.token} > ${writer.token}`);
      assert.equal(writer.held, false);
      assert.equal(writer.state, 'released');
      const other = await waiting.promise;
      assert.ok(other.token > writer.token, `${other.token} > ${writer.token}`);
      assert.equal(reader.held, true);
      assert.equal((await a.read.tryAcquire())?.held, true);
    },
  },
  {
    name: 'a downgrade lets no writer in between, and the reader’s release lets the writer in',
    needs: every(fifo, listing),
    async run(stage) {
      const name = stage.name();
      const [a, b, c] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      const own = await a.write.acquire();
      const writer = track(b.write.acquire());
      await stage.queued(a.write, 1);
      const behind = track(c.read.acquire());
      await stage.queued(a.write, 2);
      const reader = await own.downgrade();
      assert.equal(await c.write.tryAcquire(), undefined);
      await stage.queued(a.write, 2);
      assert.equal(writer.state, 'pending');
      assert.equal(behind.state, 'pending');
      assert.equal(reader.held, true);
      await own.release();
      assert.equal(reader.held, true, 'the write lease has nothing left to release');
      await reader.release();
      const next = await writer.promise;
      assert.ok(next.token > reader.token);
      await next.release();
      assert.equal((await behind.promise).held, true);
    },
  },
  {
    name: 'a downgrade lets the writers of its own instance wait for the reader',
    async run(stage) {
      const { read, write } = stage.holdfast().rwLock(stage.name());
      const own = await write.acquire();
      const next = track(write.acquire());
      const reader = await own.downgrade();
      await stage.queued(read, 1);
      assert.equal(next.state, 'pending');
      await reader.release();
      assert.ok((await next.promise).token > reader.token);
    },
  },
  {
    name: 'a run whose writer was downgraded goes on as a reader and releases that at its end',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      await a.write.run(async (writer) => {
        const reader = await writer.downgrade();
        assert.equal(reader.held, true);
        const inner = await a.read.acquire();
        assert.equal(inner.token, reader.token, 're-entrant in the reader');
        await inner.release();
        assert.equal(await b.write.tryAcquire(), undefined);
        const beside = await b.read.tryAcquire();
        assert.equal(await beside?.release(), true);
      });
      assert.equal((await b.write.tryAcquire())?.held, true);
    },
  },
  {
    name: 'maxHold goes on to count after a downgrade, and the run tells the reason',
    async run(stage) {
      const { write } = stage.holdfast().rwLock(stage.name());
      const run = write.run({ maxHold: BRIEF_HOLD_MS }, async (writer) => {
        const reader = await writer.downgrade();
        await aborted(reader.signal);
      });
      await assert.rejects(run, (error) => error instanceof LeaseLostError && error.reason === 'maxHold');
    },
  },
  {
    name: 'a lease that is over can’t be downgraded',
    async run(stage) {
      const { write } = stage.holdfast().rwLock(stage.name());
      const released = await write.acquire();
      await released.release();
      await assert.rejects(released.downgrade(), LeaseLostError);
      const lost = await write.acquire({ maxHold: 10 });
      await aborted(lost.signal);
      await assert.rejects(lost.downgrade(), LeaseLostError);
    },
  },
]);
