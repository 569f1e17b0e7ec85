/** Test runners replace time and timers for the code under test. Locks go on by the real ones. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { AcquireTimeoutError, Holdfast } from '../../src/index.js';

const EVERYTHING = [
  'setTimeout',
  'clearTimeout',
  'setInterval',
  'clearInterval',
  'setImmediate',
  'clearImmediate',
  'Date',
  'performance',
  'hrtime',
  'queueMicrotask',
] as const;

beforeEach(() => {
  vi.useFakeTimers({ toFake: [...EVERYTHING] });
});

afterEach(() => {
  vi.useRealTimers();
  // The files of a project share their modules: nobody after us is to get those that were loaded under fake timers.
  vi.resetModules();
});

test('a lock is taken, contended and given back under fake timers', async () => {
  const locks = new Holdfast('memory:fake-timers');
  const mutex = locks.mutex('a');
  const first = await mutex.acquire();
  const second = mutex.acquire();
  await first.release();
  await (await second).release();
  await locks.close();
});

test('a timeout ends by real time, and rejects', async () => {
  const locks = new Holdfast('memory:fake-timers');
  const lease = await locks.mutex('a').acquire();
  await expect(locks.mutex('a').acquire({ timeout: 20 })).rejects.toThrow(AcquireTimeoutError);
  await lease.release();
  await locks.close();
});

test('fake time that passes, or a date that is set, costs no lease', async () => {
  const locks = new Holdfast('memory:fake-timers', { ttl: '1s' });
  const lease = await locks.mutex('a').acquire();
  vi.advanceTimersByTime(3_600_000);
  vi.setSystemTime(new Date('2040-01-01'));
  expect(lease.held).toBe(true);
  lease.assertHeld();
  await lease.release();
  await locks.close();
});

test('elections, all() and once work under fake timers', async () => {
  const locks = new Holdfast('memory:fake-timers');
  const leases = await locks.all([locks.mutex('a'), locks.mutex('b')]).acquire({ timeout: '5s' });
  await leases.release();
  await expect(locks.once('nightly', {}, () => 7)).resolves.toEqual({ ran: true, value: 7 });
  const term = await locks.election('boss').campaign({ value: 'us' });
  await term.release();
  await locks.close();
});

test('faked already when Holdfast is loaded: locks work, and the fake time drives a timeout', async () => {
  vi.resetModules();
  const { Holdfast } = await import('../../src/index.js');
  const locks = new Holdfast('memory:faked-at-import');
  const lease = await locks.mutex('a').acquire();
  const late = expect(locks.mutex('a').acquire({ timeout: '5s' })).rejects.toMatchObject({ code: 'HOLDFAST_TIMEOUT' });
  await vi.advanceTimersByTimeAsync(5_200);
  await late;
  await lease.release();
  await locks.close();
});

test('faked already, but for the clocks: timers alone drive a timeout', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  vi.resetModules();
  const { Holdfast } = await import('../../src/index.js');
  const locks = new Holdfast('memory:faked-at-import');
  const lease = await locks.mutex('a').acquire();
  const late = expect(locks.mutex('a').acquire({ timeout: '5s' })).rejects.toMatchObject({ code: 'HOLDFAST_TIMEOUT' });
  await vi.advanceTimersByTimeAsync(5_200);
  await late;
  await lease.release();
  await locks.close();
});
