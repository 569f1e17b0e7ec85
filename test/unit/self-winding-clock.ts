import type { Clock, Timer } from '../../src/core/clock.js';
import { settled, VirtualClock } from './virtual-clock.js';

/**
 * A virtual clock that nobody has to advance: time moves on to the next timer as soon as the event loop has nothing left
 * to do, and stands still as soon as no timer is left that would keep a process alive. So a wait of ten minutes takes
 * none, and what runs between two timers takes no time at all, however slow the machine is.
 *
 * What is on its way from outside the process is nothing to do for the event loop: with sockets or files in play, time
 * would run away from them.
 */
export function selfWindingClock(): Clock {
  const clock = new VirtualClock();
  let winding = false;
  const wind = async (): Promise<void> => {
    if (winding) return;
    winding = true;
    try {
      for (await settled(); clock.keepsProcessAlive; await settled()) await clock.advanceToNext();
    } finally {
      winding = false;
    }
  };
  const { now, wall, random, id } = clock;
  const timer = (ms: number, run: () => void): Timer => {
    const set = clock.timer(ms, run);
    void wind();
    return {
      close: () => set.close(),
      ref: () => {
        set.ref();
        void wind();
      },
      unref: () => set.unref(),
    };
  };
  return { now, wall, random, id, timer };
}
