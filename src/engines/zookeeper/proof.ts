/**
 * Since when the servers are known to have kept our session alive.
 *
 *     beat 1 ───────────────── beat 2 ───────────────── beat 3
 *     heard by our server      passed on: proves 1      proves 2
 *        └── the next report to the leader ──┘
 *
 * Only the leader ends sessions. A follower notes who was heard from, and reports it when the leader pings it, every half
 * tick. So a reply proves that *our server* heard us; a session in whose name a follower answers may have ended already,
 * if its link to the leader hangs (measured: two believers for seconds). A `sync` has to get through to the leader and
 * back, in the order of those reports. When it does, what our server heard half a tick before has been reported: from then
 * on the session has its whole timeout. Timeouts are two ticks at least, so a quarter of the timeout is enough.
 *
 * The same pause keeps out a leader that was frozen and replaced, and answers for a moment when it goes on: it notices
 * within half a tick that nobody follows it.
 */
import type { Moment } from '../../core/engine.js';

const GAP_SHARE = 4;
/** How far the wall clock may run ahead of the monotonic one before we must have been suspended. */
const SUSPENDED_MS = 50;
const MOST_KEPT = 100;

interface Heard {
  readonly asked: Moment;
  /** By the monotonic clock. */
  readonly heardAt: number;
}

export class Proof {
  /** The newest first; those behind one that is old enough are not needed any more. */
  #heard: Heard[] = [];

  /** Our server has heard from us: it has answered what was asked then. The first is what made the session. */
  heard(asked: Moment, heardAt: number): void {
    this.#heard.unshift({ asked, heardAt });
    // Who is asked all the time needs not every answer; the newest and those that grow old stay.
    if (this.#heard.length > MOST_KEPT) this.#heard.splice(1, 1);
  }

  /** What a sync proves that was asked for at this moment, and answered. */
  since(askedAt: number, timeoutMs: number): Moment {
    const at = this.#heard.findIndex(({ heardAt }) => heardAt + timeoutMs / GAP_SHARE <= askedAt);
    // The oldest is what was proven before, or the making of the session, which was the leader's own.
    if (at === -1) return this.#heard.at(-1)!.asked;
    this.#heard = this.#heard.slice(0, at + 1);
    return this.#heard[at]!.asked;
  }

  /**
   * How long to wait before a sync is worth sending. Almost always not at all; but after a suspension nothing from before it
   * is good enough, and without a pause we would be asked again and again until something later is.
   */
  pauseMs({ now, wall }: Moment, timeoutMs: number): number {
    const gapMs = timeoutMs / GAP_SHARE;
    const suspended = ({ asked }: Heard): boolean => wall - asked.wall - (now - asked.now) > SUSPENDED_MS;
    const newest = this.#heard[0]!;
    const proven = this.#heard.find(({ heardAt }) => heardAt + gapMs <= now) ?? this.#heard.at(-1)!;
    return suspended(newest) || !suspended(proven) ? 0 : Math.max(0, newest.heardAt + gapMs - now);
  }
}
