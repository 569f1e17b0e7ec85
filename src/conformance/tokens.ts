import assert from 'node:assert/strict';
import type { HoldfastOptions } from '../index.js';
import { type Case, listing, shared } from './case.js';
import type { Stage } from './stage.js';

/** Of two grants of one name that may not coexist the later has the larger token, for ever. */
export const tokens: readonly Case[] = [
  {
    name: 'tokens grow over turns of several instances, cohort turns included',
    run: (stage) => underContention(stage, {}),
  },
  {
    name: 'tokens grow over turns of several instances without cohorts',
    run: (stage) => underContention(stage, { cohort: false }),
  },
  {
    name: 'every turn of a cohort has a token of its own, in order, also beyond one cohort’s 64',
    async run(stage) {
      const name = stage.name();
      const granted: bigint[] = [];
      const lock = stage.holdfast().mutex(name);
      await Promise.all(Array.from({ length: 150 }, () => lock.run(({ token }) => granted.push(token))));
      assert.equal(granted.length, 150);
      assertGrowing(granted);
    },
  },
  {
    name: 'tokens grow though nothing of the line is left in between',
    async run(stage) {
      const name = stage.name();
      const granted: bigint[] = [];
      for (let turn = 0; turn < 10; turn += 1) {
        const locks = stage.holdfast();
        granted.push((await locks.mutex(name).acquire()).token);
        await locks.close();
      }
      assertGrowing(granted);
    },
  },
  {
    name: 'tokens of tries grow as well',
    async run(stage) {
      const name = stage.name();
      const instances = [stage.holdfast(), stage.holdfast()];
      const granted: bigint[] = [];
      for (let turn = 0; turn < 10; turn += 1) {
        const lease = await instances[turn % 2]!.mutex(name).tryAcquire();
        assert.ok(lease);
        granted.push(lease.token);
        await lease.release();
      }
      assertGrowing(granted);
    },
  },
  {
    name: 'a writer’s token is above every earlier reader’s, and a reader’s above every earlier writer’s',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      let newestWriter = 0n;
      for (let round = 0; round < 5; round += 1) {
        const readers = await Promise.all([a.read.acquire(), b.read.acquire(), a.read.acquire()]);
        const newestReader = readers.reduce((most, { token }) => (token > most ? token : most), 0n);
        for (const { token } of readers) assert.ok(token > newestWriter, `${token} > ${newestWriter}`);
        await Promise.all(readers.map((reader) => reader.release()));
        const writer = await (round % 2 ? a : b).write.acquire();
        assert.ok(writer.token > newestReader, `${writer.token} > ${newestReader}`);
        newestWriter = writer.token;
        await writer.release();
      }
    },
  },
  {
    name: 'a token is a bigint above 0 that a signed 64-bit column holds',
    async run(stage) {
      const { token } = await stage.holdfast().mutex(stage.name()).acquire();
      assert.equal(typeof token, 'bigint');
      assert.ok(token > 0n && token < 2n ** 63n, `${token}`);
    },
  },
  {
    name: 'inspect shows a holder with the token that it has',
    needs: listing,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      assert.equal((await a.mutex(name).inspect()).claims[0]?.token, lease.token);
      assert.equal((await b.mutex(name).inspect()).claims[0]?.token, lease.token);
    },
  },
];

async function underContention(stage: Stage, options: HoldfastOptions): Promise<void> {
  const name = stage.name();
  const granted: bigint[] = [];
  const instances = Array.from({ length: 3 }, () => stage.holdfast(options).mutex(name));
  const turns = instances.flatMap((lock) =>
    Array.from({ length: 8 }, () =>
      lock.run(async ({ token }) => {
        granted.push(token);
        await stage.breath();
      }),
    ),
  );
  await Promise.all(turns);
  assert.equal(granted.length, turns.length);
  assertGrowing(granted);
}

function assertGrowing(tokens: readonly bigint[]): void {
  for (const [at, token] of tokens.entries()) {
    const before = tokens[at - 1] ?? 0n;
    assert.ok(token > before, `the token of grant ${at}, ${token}, is not above ${before}`);
  }
}
