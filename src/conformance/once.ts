import assert from 'node:assert/strict';
import { ConfigError, LeaseLostError } from '../index.js';
import { type Case, forgets, group, registers } from './case.js';
import { aborted, gate } from './tracked.js';

/** Once across the fleet, or not at all if another runs it, or ran it a short while ago. */
export const once: readonly Case[] = group({ needs: registers }, [
  {
    name: 'it runs, under a lease, and gives the function’s value',
    async run(stage) {
      const name = stage.name();
      const result = await stage.holdfast().once(name, {}, async (lease) => {
        assert.equal(lease.held, true);
        assert.equal(await stage.holdfast().mutex(name).tryAcquire(), undefined);
        return 42;
      });
      assert.deepEqual(result, { ran: true, value: 42 });
    },
  },
  {
    name: 'while one runs it the others skip, and after that it may run again',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const inside = gate();
      const done = gate();
      const running = a.once(name, {}, async () => {
        inside.open();
        await done.opened;
        return 'a';
      });
      await inside.opened;
      assert.deepEqual(await b.once(name, {}, () => 'b'), { ran: false });
      assert.deepEqual(await a.once(name, {}, () => 'a again'), { ran: false });
      done.open();
      assert.deepEqual(await running, { ran: true, value: 'a' });
      assert.deepEqual(await b.once(name, {}, () => 'b'), { ran: true, value: 'b' });
    },
  },
  {
    name: 'of many that start it at once one runs it',
    async run(stage) {
      const name = stage.name();
      let ran = 0;
      const instances = Array.from({ length: 4 }, () => stage.holdfast());
      const results = await Promise.all(
        instances.map((locks) => locks.once(name, { atLeast: '1h' }, () => (ran += 1))),
      );
      assert.ok(ran <= 1, `${ran} ran it`);
      assert.equal(results.filter((result) => result.ran).length, ran);
    },
  },
  {
    name: 'atLeast keeps it from running again, for everybody, and outlives the instance that ran it',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      assert.deepEqual(await a.once(name, { atLeast: '1h' }, () => 'a'), { ran: true, value: 'a' });
      assert.deepEqual(await a.once(name, { atLeast: '1h' }, () => 'again'), { ran: false });
      await a.close();
      assert.deepEqual(await b.once(name, { atLeast: '1h' }, () => 'b'), { ran: false });
      assert.deepEqual(await b.once(name, {}, () => 'b'), { ran: false }, 'the run that was counts, not the next');
      assert.equal((await b.mutex(name).tryAcquire())?.held, true, 'the lock itself is free');
    },
  },
  {
    name: 'atLeast counts also when the run failed',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const thrown = new Error('no space left');
      await assert.rejects(
        a.once(name, { atLeast: '1h' }, () => Promise.reject(thrown)),
        (error) => error === thrown,
      );
      assert.deepEqual(await b.once(name, { atLeast: '1h' }, () => 'b'), { ran: false });
    },
  },
  {
    name: 'a run that failed counts for nothing where it is to be tried again',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const thrown = new Error('no space left');
      const failed = a.once(name, { atLeast: '1h', onError: 'retry' }, () => {
        throw thrown;
      });
      await assert.rejects(failed, (error) => error === thrown);
      const retried = await b.once(name, { atLeast: '1h', onError: 'retry' }, () => 'b');
      assert.deepEqual(retried, { ran: true, value: 'b' });
      assert.deepEqual(await a.once(name, { atLeast: '1h', onError: 'retry' }, () => 'a'), { ran: false });
      await assert.rejects(
        a.once(stage.name(), { onError: 'again' as never }, () => {}),
        ConfigError,
      );
    },
  },
  {
    name: 'after atLeast it runs again',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      assert.equal((await a.once(name, { atLeast: 200 }, () => {})).ran, true);
      await stage.eventually('it runs again', async () => (await b.once(name, { atLeast: 200 }, () => {})).ran);
    },
  },
  {
    name: 'after atLeast nothing is left of it, and it runs again',
    needs: forgets,
    protocol: true,
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const registers = await stage.registers();
      const register = `once\u001F${name}`;
      assert.equal((await locks.once(name, { atLeast: 10 }, () => {})).ran, true);
      // Some engines forget one when another is written.
      const other = stage.name();
      await stage.eventually('it is forgotten', async () => {
        await locks.once(other, { atLeast: 1 }, () => {});
        const read = await registers.read(register);
        return read.ok && !read.value;
      });
      assert.equal((await locks.once(name, { atLeast: 10 }, () => {})).ran, true);
    },
  },
  {
    name: 'atMost ends the lease: the run rejects, and another may run it',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      await assert.rejects(
        a.once(name, { atMost: 50 }, ({ signal }) => aborted(signal)),
        (error) => error instanceof LeaseLostError && error.reason === 'maxHold',
      );
      await stage.eventually('another runs it', async () => (await b.once(name, {}, () => {})).ran);
    },
  },
  {
    name: 'its memory is apart from the register of the same name',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      await locks.once(name, { atLeast: '1h' }, (lease) => locks.register(name).set('mine', lease));
      assert.equal((await locks.register(name).get())?.value, 'mine');
      assert.deepEqual(await locks.once(name, {}, () => 'again'), { ran: false });
    },
  },
]);
