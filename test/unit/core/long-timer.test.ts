import { expect, test } from 'vitest';
import { withLongTimers } from '../../../src/core/long-timer.js';
import { AcquireTimeoutError, Holdfast } from '../../../src/index.js';
import { VirtualClock } from '../virtual-clock.js';

const DAY_MS = 86_400_000;

/** As setTimeout does it: what is too long for it is over at once. */
class RuntimesClock extends VirtualClock {
  constructor() {
    super();
    const { timer } = this;
    this.timer = (ms, run) => timer(ms > 2 ** 31 - 1 ? 1 : ms, run);
  }
}

test('a timer of a hundred days runs after a hundred days, once', async () => {
  const clock = new RuntimesClock();
  let ran = 0;
  withLongTimers(clock).timer(100 * DAY_MS, () => (ran += 1));
  await clock.advance(99.9 * DAY_MS);
  expect(ran).toBe(0);
  await clock.advance(0.1 * DAY_MS);
  expect(ran).toBe(1);
  expect(clock.timersPending).toBe(0);
});

test('it can be closed in any part of it, and keeps no process alive that it should not', async () => {
  const clock = new RuntimesClock();
  const timer = withLongTimers(clock).timer(100 * DAY_MS, () => expect.unreachable());
  timer.unref();
  await clock.advance(50 * DAY_MS);
  expect(clock.keepsProcessAlive).toBe(false);
  timer.ref();
  expect(clock.keepsProcessAlive).toBe(true);
  timer.close();
  expect(clock.timersPending).toBe(0);
});

test('a timeout of thirty days is not over at once', async () => {
  const clock = new RuntimesClock();
  const locks = new Holdfast('memory:long', { clock, ttl: '10m' });
  const other = new Holdfast('memory:long', { clock, ttl: '10m' });
  await locks.mutex('a').acquire();
  let error: unknown;
  void other
    .mutex('a')
    .acquire({ timeout: '30d' })
    .catch((thrown: unknown) => (error = thrown));
  await clock.advance(600_000);
  expect(error).toBeUndefined();
  expect(other.stats().waiting).toBe(1);
  await locks.close({ drain: 0 });
  await other.close({ drain: 0 });
  expect(error).not.toBeInstanceOf(AcquireTimeoutError);
});
