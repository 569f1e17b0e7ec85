import { setImmediate } from '../core/real-time.js';
import type { Clock, Timer } from '../index.js';

/** Time that passes only when a test says so. */
export interface ManualClock extends Clock {
  /** Lets time pass. Timers run when they are due, and what they caused settles before time goes on. */
  advance(ms: number): Promise<void>;
}

interface ManualTimer extends Timer {
  readonly at: number;
  readonly run: () => void;
}

/**
 * A clock for `new Holdfast(engine, { clock })`: a timeout of an hour takes no time. Instances that share a memory space must
 * share the clock too. Only for memory: a server has its own time.
 *
 * @example
 * const clock = manualClock();
 * const locks = new Holdfast(freshMemory(), { clock });
 * const late = locks.mutex('a').acquire({ timeout: '1h' });
 * await clock.advance(3_600_000);
 */
export function manualClock(): ManualClock {
  const timers = new Set<ManualTimer>();
  const started = 1_700_000_000_000;
  let now = 0;
  let ids = 0;

  function nextUntil(end: number): ManualTimer | undefined {
    // In the order in which they were set, where they are due at the same time.
    let next: ManualTimer | undefined;
    for (const timer of timers) if (timer.at <= end && (!next || timer.at < next.at)) next = timer;
    return next;
  }

  return {
    now: () => now,
    wall: () => started + Math.floor(now),
    random: () => 0.5,
    id: () => {
      ids += 1;
      return `manual-${ids}`;
    },
    timer: (ms, run) => {
      const close = (): boolean => timers.delete(timer);
      const timer: ManualTimer = { at: now + Math.max(0, ms), run, close, ref: () => {}, unref: () => {} };
      timers.add(timer);
      return timer;
    },
    advance: async (ms) => {
      const end = now + ms;
      await settled();
      for (let next = nextUntil(end); next; next = nextUntil(end)) {
        timers.delete(next);
        now = Math.max(now, next.at);
        next.run();
        await settled();
      }
      now = end;
    },
  };
}

/** All promise reactions have run: immediates come after the microtask queue is empty. */
function settled(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
