/** What people test their own code with. */
import { expect, test, vi } from 'vitest';
import { AcquireTimeoutError, Holdfast, LeaseLostError } from '../../../src/index.js';
import { busy, freshMemory, lose, manualClock } from '../../../src/testing/index.js';

test('a manual clock lets an hour pass at once', async () => {
  const clock = manualClock();
  const engine = freshMemory();
  await using locks = new Holdfast(engine, { clock });
  await using rival = await busy('a', { engine, clock });
  const late = expect(locks.mutex('a').acquire({ timeout: '1h' })).rejects.toThrow(AcquireTimeoutError);
  await clock.advance(3_600_100);
  await late;
  expect(rival.lease.held).toBe(true);
});

test('a manual clock works under fake timers, too', async () => {
  vi.useFakeTimers();
  try {
    const clock = manualClock();
    await using locks = new Holdfast(freshMemory(), { clock });
    const lease = await locks.mutex('a').acquire({ maxHold: '1m' });
    await clock.advance(60_000);
    expect(lease.held).toBe(false);
  } finally {
    vi.useRealTimers();
  }
});

test('a busy lock is held by somebody else until it is released', async () => {
  const engine = freshMemory();
  await using locks = new Holdfast(engine);
  const rival = await busy('a', { engine });
  expect(await locks.mutex('a').tryAcquire()).toBeUndefined();
  await rival.release();
  expect(await locks.mutex('a').tryAcquire()).toBeDefined();
});

test('a busy lock is in the memory that all share, unless it is told otherwise', async () => {
  await using locks = new Holdfast('memory:');
  await using _rival = await busy('busy by default');
  expect(await locks.mutex('busy by default').tryAcquire()).toBeUndefined();
});

test('a lease that is lost tells its owner, and another gets the lock', async () => {
  await using locks = new Holdfast(freshMemory());
  const mutex = locks.mutex('a');
  const run = mutex.run(async (lease) => {
    const aborted = new Promise((resolve) => {
      lease.signal.addEventListener('abort', () => resolve(lease.signal.reason));
    });
    lose(lease);
    expect(await aborted).toBeInstanceOf(LeaseLostError);
    expect(lease.held).toBe(false);
    lease.assertHeld();
  });
  await expect(run).rejects.toMatchObject({ code: 'HOLDFAST_LOST', reason: 'session' });
  expect(await mutex.tryAcquire()).toBeDefined();
});

test('what is no lease can’t be lost', () => {
  expect(() => lose({} as never)).toThrow('must be a lease');
});

test('fresh memories have nothing in common', async () => {
  await using one = new Holdfast(freshMemory());
  await using two = new Holdfast(freshMemory());
  expect(await one.mutex('a').tryAcquire()).toBeDefined();
  expect(await two.mutex('a').tryAcquire()).toBeDefined();
});
