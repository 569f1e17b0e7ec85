import assert from 'node:assert/strict';
import { ConfigError, type Engine, type Lease, StaleTokenError } from '../index.js';
import { type Case, forgets, group, registers as needed, shared, weighted } from './case.js';
import type { Stage } from './stage.js';
import { aborted } from './tracked.js';

/** A register may be read and written only with a token at least as new as the last one presented. */
export const registers: readonly Case[] = group({ needs: needed }, [
  {
    name: 'a value is read back with its writer’s token and an age, by everybody, after the lease and its instance',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      assert.equal(await b.register(name).get(), undefined);
      const lease = await a.mutex(name).acquire();
      await a.register(name).set('first', lease);
      const early = await b.register(name).get();
      assert.ok(early);
      assert.equal(early.value, 'first');
      assert.equal(early.token, lease.token);
      assert.ok(early.age >= 0 && early.age < 60_000, `${early.age}`);
      await a.close();
      await stage.eventually('it grows older', async () => ((await b.register(name).get())?.age ?? 0) > early.age);
      assert.equal((await b.register(name).get())?.value, 'first');
    },
  },
  {
    name: 'a lease may write as often as it likes, and its own read does not stand in its way',
    async run(stage) {
      const locks = stage.holdfast();
      const name = stage.name();
      const register = locks.register(name);
      await locks.mutex(name).run(async (lease) => {
        assert.equal(await register.get(lease), undefined);
        await register.set('1', lease);
        assert.equal((await register.get(lease))?.value, '1');
        await register.set('2', lease);
        assert.equal((await register.get(lease))?.value, '2');
      });
    },
  },
  {
    name: 'a stale token is refused with StaleTokenError, and nothing is written',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const old = await a.mutex(name).acquire();
      await old.release();
      const current = await b.mutex(name).acquire();
      await b.register(name).set('new', current);
      await assert.rejects(a.register(name).set('old', old), (error) => assertStale(error, old, current));
      await assert.rejects(a.register(name).get(old), (error) => assertStale(error, old, current));
      const { value, token } = (await a.register(name).get())!;
      assert.deepEqual({ value, token }, { value: 'new', token: current.token });
    },
  },
  {
    name: 'get with a lease opens the fence: an older token is refused though nothing was written since',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const old = await a.mutex(name).acquire();
      await a.register(name).set('before', old);
      await old.release();
      const current = await b.mutex(name).acquire();
      assert.equal((await b.register(name).get(current))?.value, 'before');
      await assert.rejects(a.register(name).set('too late', old), (error) => assertStale(error, old, current));
      await assert.rejects(a.register(name).get(old), (error) => assertStale(error, old, current));
      assert.equal((await a.register(name).get())?.value, 'before', 'who presents no token may look');
      await b.register(name).set('after', current);
    },
  },
  {
    name: 'get with a lease opens the fence of a register that was never written',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const old = await locks.mutex(name).acquire();
      await old.release();
      const current = await locks.mutex(name).acquire();
      assert.equal(await locks.register(name).get(current), undefined);
      await assert.rejects(locks.register(name).set('too late', old), (error) => assertStale(error, old, current));
      assert.equal(await locks.register(name).get(), undefined);
    },
  },
  {
    name: 'the token decides, not the lease’s state: a lost lease writes as long as nobody newer came',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const lost = await locks.mutex(name).acquire({ maxHold: 10 });
      await aborted(lost.signal);
      await locks.register(name).set('late, but the last', lost);
      const next = await locks.mutex(name).acquire();
      await locks.register(name).get(next);
      await assert.rejects(locks.register(name).set('too late', lost), (error) => assertStale(error, lost, next));
    },
  },
  {
    name: 'two turns of one cohort have tokens that the register tells apart',
    async run(stage) {
      const locks = stage.holdfast();
      const name = stage.name();
      const turns = await Promise.all(
        Array.from({ length: 8 }, (_, turn) =>
          locks.mutex(name).run(async (lease) => {
            await locks.register(name).set(`${turn}`, lease);
            return lease;
          }),
        ),
      );
      const last = turns.at(-1)!;
      assert.equal((await locks.register(name).get())?.value, '7');
      for (const old of turns.slice(0, -1)) {
        await assert.rejects(locks.register(name).set('old', old), (error) => assertStale(error, old, last));
      }
    },
  },
  {
    name: 'tokens are compared as integers of 64 bits, not as doubles and not as text',
    protocol: true,
    async run(stage) {
      const name = stage.name();
      const registers = await stage.registers();
      const ok = { ok: true, value: undefined } as const;
      for (const token of [9n, 10n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 62n, 2n ** 62n + 1n, 2n ** 63n - 1n]) {
        assert.deepEqual(await registers.write(name, `${token}`, token), ok);
        assert.deepEqual(await registers.write(name, 'stale', token - 1n), { ok: false, newest: token });
        const stale = { token: token - 1n, mode: 'write' } as const;
        assert.deepEqual(await registers.read(name, stale), { ok: false, newest: token });
        const read = await registers.read(name);
        assert.ok(read.ok);
        assert.equal(read.value?.value, `${token}`);
        assert.equal(read.value.token, token);
      }
    },
  },
  {
    name: 'a write and a fenced read may be repeated: the same token again is no stale one',
    protocol: true,
    async run(stage) {
      const name = stage.name();
      const registers = await stage.registers();
      for (const fence of [{ token: 7n, mode: 'read' } as const, { token: 8n, mode: 'write' } as const]) {
        assert.deepEqual(await registers.read(name, fence), { ok: true, value: undefined });
        assert.deepEqual(await registers.read(name, fence), { ok: true, value: undefined });
      }
      assert.equal((await registers.write(name, 'value', 8n)).ok, true);
      assert.equal((await registers.write(name, 'value', 8n)).ok, true);
    },
  },
  {
    name: 'names with U+001F, which users can’t write, are registers of their own',
    protocol: true,
    async run(stage) {
      const name = stage.name();
      const registers = await stage.registers();
      assert.equal((await registers.write(`once\u001F${name}`, 'the core’s', 1n)).ok, true);
      assert.deepEqual(await registers.read(name), { ok: true, value: undefined });
      assert.deepEqual(await registers.read(`once${name}`), { ok: true, value: undefined });
      const read = await registers.read(`once\u001F${name}`);
      assert.ok(read.ok);
      assert.equal(read.value?.value, 'the core’s');
    },
  },
  {
    name: 'what is written for a time is there until then, and forgotten after it: value and fence',
    needs: forgets,
    protocol: true,
    async run(stage) {
      const name = stage.name();
      const registers = await stage.registers();
      const keepMs = 300;
      const before = stage.now();
      assert.equal((await registers.write(name, 'for a time', 9n, keepMs)).ok, true);
      await forgotten(stage, registers, name);
      assert.ok(stage.now() - before >= keepMs, `forgotten after ${stage.now() - before} ms`);
      assert.deepEqual(await registers.write(name, 'anew', 1n), { ok: true, value: undefined });
    },
  },
  {
    name: 'the last write says for how long a register is kept, and a read changes nothing about it',
    needs: forgets,
    protocol: true,
    async run(stage) {
      const [forEver, longer, shorter] = [stage.name(), stage.name(), stage.name()];
      const registers = await stage.registers();
      const soonMs = 100;
      for (const name of [forEver, longer]) await registers.write(name, 'first', 1n, soonMs);
      await registers.write(forEver, 'second', 2n);
      await registers.write(longer, 'second', 2n, 3_600_000);
      await registers.write(shorter, 'first', 1n);
      await registers.write(shorter, 'second', 2n, soonMs);
      await registers.read(shorter, { token: 3n, mode: 'read' });
      await forgotten(stage, registers, shorter);
      for (const name of [forEver, longer]) {
        const read = await registers.read(name);
        assert.ok(read.ok);
        assert.equal(read.value?.value, 'second');
      }
    },
  },
  {
    name: 'readers share a fence; a reader’s token keeps older writers out, and a writer’s older readers',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const oldWriter = await a.rwLock(name).write.acquire();
      await a.register(name).set('written', oldWriter);
      await oldWriter.release();
      const older = await a.rwLock(name).read.acquire();
      const newer = await b.rwLock(name).read.acquire();
      assert.ok(newer.token > older.token);
      assert.equal((await b.register(name).get(newer))?.value, 'written');
      assert.equal((await a.register(name).get(older))?.value, 'written', 'readers do not exclude each other');
      await assert.rejects(a.register(name).set('stale', oldWriter), (error) => assertStale(error, oldWriter, newer));
      await older.release();
      await newer.release();
      const writer = await b.rwLock(name).write.acquire();
      await b.register(name).set('written again', writer);
      for (const reader of [older, newer]) {
        await assert.rejects(a.register(name).get(reader), (error) => assertStale(error, reader, writer));
      }
    },
  },
  {
    name: 'a read lease can’t write',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const reader = await locks.rwLock(name).read.acquire();
      await assert.rejects(locks.register(name).set('value', reader), ConfigError);
    },
  },
  {
    name: 'a semaphore’s lease is refused: several hold at once, so no token is the newest',
    needs: weighted,
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const lease = await locks.semaphore(name, 2).acquire();
      await assert.rejects(locks.register(name).get(lease), ConfigError);
      await assert.rejects(locks.register(name).set('value', lease), ConfigError);
    },
  },
  {
    name: 'a lease of another name is refused',
    async run(stage) {
      const locks = stage.holdfast();
      const lease = await locks.mutex(stage.name()).acquire();
      const other = locks.register(stage.name());
      await assert.rejects(other.get(lease), ConfigError);
      await assert.rejects(other.set('value', lease), ConfigError);
      assert.equal(await other.get(), undefined);
    },
  },
  {
    name: 'a value has at most 64 KiB in UTF-8, and one of that size fits',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const register = locks.register(name);
      const lease = await locks.mutex(name).acquire();
      for (const fits of ['x'.repeat(65_536), 'é'.repeat(32_768)]) {
        await register.set(fits, lease);
        assert.equal((await register.get())?.value, fits);
      }
      for (const tooLong of ['x'.repeat(65_537), 'é'.repeat(32_769)]) {
        await assert.rejects(register.set(tooLong, lease), ConfigError);
      }
      assert.equal((await register.get())?.value, 'é'.repeat(32_768));
    },
  },
  {
    name: 'every string comes back as it went in',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const lease = await locks.mutex(name).acquire();
      const values = [
        '',
        ' ',
        '0',
        'null',
        '{"a":[1,"b"]}',
        'line\r\nline\n',
        '\0\u001F\u007F',
        '\'"`\\%_$1{}',
        'é日本🔒',
      ];
      for (const value of values) {
        await locks.register(name).set(value, lease);
        assert.equal((await locks.register(name).get())?.value, value);
      }
    },
  },
  {
    name: 'namespaces have registers of their own',
    async run(stage) {
      const name = stage.name();
      const [here, there] = [stage.holdfast(), stage.holdfast({ namespace: `${stage.namespace}/there` })];
      await here.mutex(name).run((lease) => here.register(name).set('here', lease));
      assert.equal(await there.register(name).get(), undefined);
    },
  },
]);

/** Some engines forget one when another is written for a time. */
async function forgotten(stage: Stage, registers: NonNullable<Engine['registers']>, name: string): Promise<void> {
  const other = stage.name();
  await stage.eventually('it is forgotten', async () => {
    await registers.write(other, 'for a time', 1n, 1);
    const read = await registers.read(name);
    return read.ok && !read.value;
  });
}

function assertStale(error: unknown, stale: Lease, newest: Lease): true {
  assert.ok(error instanceof StaleTokenError, String(error));
  assert.equal(error.code, 'HOLDFAST_STALE_TOKEN');
  assert.equal(error.lock, stale.name);
  assert.equal(error.token, stale.token);
  assert.equal(error.newest, newest.token);
  return true;
}
