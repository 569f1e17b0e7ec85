/** Which waits are refused because they would never end, and which are not. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { outside } from '../../../src/core/outside.js';
import { DeadlockError, Holdfast, type Lease } from '../../../src/index.js';

/** What a promise rejects with, if it does. */
async function outcomeOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => 'done',
    (error: unknown) => (error instanceof DeadlockError ? 'refused' : error),
  );
}

/** Whatever was asked of the memory engine has been answered. */
async function quiet(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** A promise and what resolves it. */
function gate<T = void>(): { readonly opened: Promise<T>; readonly open: (value: T) => void } {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => (open = resolve));
  return { opened, open };
}

/** What is not refused hangs, and a planted bug is to be found soon. */
const SOON = { timeout: 5_000 };

describe('a deadlock', SOON, () => {
  test('through the only permit of a semaphore is refused', async () => {
    await using locks = new Holdfast('memory:one-permit');
    const [permit, mutex] = [locks.semaphore('s', 1), locks.mutex('m')];
    const outcomes = await Promise.all([
      permit.run(async () => outcomeOf((await sleep(20), mutex.run(() => {})))),
      mutex.run(async () => outcomeOf((await sleep(20), permit.run(() => {})))),
    ]);
    expect(outcomes.filter((outcome) => outcome === 'refused')).toHaveLength(1);
  });

  test('is none where another permit will be free', async () => {
    await using locks = new Holdfast('memory:two-permits');
    const [permits, mutex] = [locks.semaphore('s', 2), locks.mutex('m')];
    await permits.run({ permits: 2 }, async () => {
      let begin!: () => void;
      const begun = new Promise<void>((resolve) => (begin = resolve));
      const first = permits.run(async () => (await begun, mutex.run(() => 'first')));
      const second = permits.run(() => sleep(100, 'second'));
      const third = mutex.run(async () => (begin(), await sleep(10), permits.run(() => 'third')));
      expect(await Promise.all([first, second, third])).toEqual(['first', 'second', 'third']);
    });
  });

  test('through a term that close() has ended is refused', async () => {
    const locks = new Holdfast('memory:ended-term', { ttl: '1m' });
    const leading = locks.election('e').lead(async (term) => {
      await new Promise((resolve) => term.signal.addEventListener('abort', resolve));
      return outcomeOf((await sleep(20), locks.mutex('m').run(() => {})));
    });
    const other = locks.mutex('m').run(async () => outcomeOf((await sleep(60), locks.mutex('e').run(() => {}))));
    await sleep(20);
    await locks.close();
    expect([await leading, await other].filter((outcome) => outcome === 'refused')).toHaveLength(1);
  });

  test('through a waiter that wants all permits and stands between is refused', async () => {
    await using locks = new Holdfast('memory:behind-all');
    const [permits, mutex] = [locks.semaphore('s', 2), locks.mutex('m')];
    const { opened, open } = gate();
    const holder = permits.run(async () => outcomeOf((await opened, mutex.run(() => {}))));
    await quiet();
    const between = permits.run({ permits: 2 }, () => 'between');
    await quiet();
    const behind = mutex.run(() => outcomeOf(permits.run(() => {})));
    await quiet();
    open();
    expect(await Promise.all([holder, between, behind])).toEqual(['refused', 'between', 'done']);
  });

  test('is none behind a waiter for all permits that gives up by itself', async () => {
    await using locks = new Holdfast('memory:behind-impatient');
    const [permits, mutex] = [locks.semaphore('s', 2), locks.mutex('m')];
    const { opened, open } = gate();
    const holder = permits.run(async () => outcomeOf((await opened, mutex.run(() => {}))));
    await quiet();
    const between = permits.acquire({ permits: 2, timeout: 200 });
    await quiet();
    const behind = mutex.run(() => outcomeOf(permits.run(() => {})));
    await quiet();
    open();
    await expect(between).rejects.toThrow('not free');
    expect(await Promise.all([holder, behind])).toEqual(['done', 'done']);
  });

  test('is none where the one who wants all permits stands behind', async () => {
    await using locks = new Holdfast('memory:before-all');
    const [permits, mutex] = [locks.semaphore('s', 3), locks.mutex('m')];
    const { opened, open } = gate();
    const holder = permits.run(async () => outcomeOf((await opened, mutex.run(() => {}))));
    const other = permits.run({ permits: 2 }, () => opened);
    await quiet();
    const before = mutex.run(() => outcomeOf(permits.run(() => {})));
    await quiet();
    const last = permits.run({ permits: 3 }, () => 'last');
    await quiet();
    open();
    expect(await Promise.all([holder, other, before, last])).toEqual(['done', undefined, 'done', 'last']);
  });

  test('is none for a reader inside a lease, behind a writer that gives up by itself', async () => {
    await using locks = new Holdfast('memory:reader-on-floor');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    await shared.write.run(async () => {
      const { opened, open } = gate();
      const holder = shared.read.run(async () => outcomeOf((await opened, mutex.run(() => {}))));
      await quiet();
      const between = shared.write.acquire({ timeout: 200 });
      const behind = mutex.run(() => outcomeOf(shared.read.run(() => {})));
      await quiet();
      open();
      await expect(between).rejects.toThrow('not free');
      expect(await Promise.all([holder, behind])).toEqual(['done', 'done']);
    });
  });

  test('through a downgrade that waits for those inside is refused', async () => {
    await using locks = new Holdfast('memory:downgrade-cycle');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    const { opened, open } = gate();
    const running = shared.write.run(async (lease) => {
      const inside = shared.write.run(async () => outcomeOf((await opened, mutex.run(() => {}))));
      await quiet();
      await mutex.run(async () => {
        const downgraded = lease.downgrade();
        open();
        await downgraded;
      });
      return inside;
    });
    expect(await running).toBe('refused');
  });

  test('through one who waits behind a downgrade is refused', async () => {
    await using locks = new Holdfast('memory:behind-downgrade');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    await shared.write.run(async (lease) => {
      const { opened, open } = gate();
      const before = shared.write.run(async () => outcomeOf((await opened, mutex.run(() => {}))));
      await quiet();
      const downgraded = outside(() => lease.downgrade());
      const behind = mutex.run(() => outcomeOf(shared.read.run(() => {})));
      await quiet();
      open();
      expect(await Promise.all([before, behind])).toEqual(['refused', 'done']);
      await downgraded;
    });
  });

  test('that a downgrade would close is refused to it, and the writer stays one', async () => {
    await using locks = new Holdfast('memory:downgrade-closes');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    const running = mutex.run(() =>
      shared.write.run(async (lease) => {
        const inside = outside(() => shared.write.run({ within: lease }, () => mutex.run(() => 'inside')));
        await quiet();
        expect(await outcomeOf(lease.downgrade())).toBe('refused');
        expect(lease.held).toBe(true);
        return { inside };
      }),
    );
    expect(await (await running).inside).toBe('inside');
  });

  test('through the end of a run that waits for those inside is refused', async () => {
    await using locks = new Holdfast('memory:end-cycle');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    const [handed, ended] = [gate<Lease>(), gate()];
    const inside = handed.opened.then((within) =>
      shared.write.run({ within }, async () => outcomeOf((await ended.opened, mutex.run(() => {})))),
    );
    const running = mutex.run(() => shared.write.run(async (lease) => (handed.open(lease), quiet())));
    await quiet();
    await quiet();
    ended.open();
    expect(await inside).toBe('refused');
    await running;
  });

  test('through one inside a lease that is only kept for it is refused', async () => {
    await using locks = new Holdfast('memory:kept-cycle');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    const [handed, ended] = [gate<Lease>(), gate()];
    const inside = handed.opened.then(async (within) => {
      const between = await shared.write.acquire({ within });
      const inner = shared.write.run({ within: between }, async () =>
        outcomeOf((await ended.opened, mutex.run(() => {}))),
      );
      await quiet();
      await between.release();
      return inner;
    });
    const running = mutex.run(() =>
      shared.write.run(async (lease) => (handed.open(lease), await quiet(), await quiet())),
    );
    await quiet();
    await quiet();
    await quiet();
    ended.open();
    expect(await inside).toBe('refused');
    await running;
  });

  test('that the end of a run would close leaves those inside to themselves', async () => {
    await using locks = new Holdfast('memory:end-closes');
    const [shared, mutex] = [locks.rwLock('x'), locks.mutex('m')];
    const handed = gate<Lease>();
    const inside = handed.opened.then((within) => shared.write.run({ within }, () => mutex.run(() => 'inside')));
    const running = mutex.run(() => shared.write.run(async (lease) => (handed.open(lease), await quiet(), 'ran')));
    expect(await running).toBe('ran');
    expect(await inside).toBe('inside');
    await shared.write.run(() => {});
  });
});
