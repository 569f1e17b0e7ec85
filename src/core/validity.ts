import type { Clock } from './clock.js';

/** Part of the ttl that we give away, so that `held` is false before the engine can grant to another. Covers clock drift. */
const MARGIN = 0.1;

/** The wall clock shows whole milliseconds: without this it would run ahead, and doubt what is valid, for up to one. */
const WALL_TICK_MS = 1;

/**
 * Until when everything that a session claims is ours. To read it changes nothing, whoever reads and however often; that it
 * is over is noticed by the session, in a step of its own.
 *
 * It is counted on the monotonic clock from *before* the last successful beat was sent, for ttl less the margin. Where the
 * wall clock ran ahead of the monotonic one, the machine may have been suspended: nothing is valid then until a beat has
 * succeeded.
 */
export class Validity {
  readonly #clock: Clock;
  #until = 0;
  #untilWall = 0;
  /** Beats in a row without an answer. */
  missed = 0;
  /** The session has ended, whatever the clock says. */
  ended = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** False from the moment on at which somebody else may hold. */
  get valid(): boolean {
    return !this.expired && !this.inDoubt;
  }

  /** For good: no late answer brings it back. */
  get expired(): boolean {
    return this.ended || this.#clock.now() >= this.#until;
  }

  /** The machine may have been suspended: only a beat can tell. */
  get inDoubt(): boolean {
    return this.#clock.wall() >= this.#untilWall;
  }

  get inJeopardy(): boolean {
    return this.missed > 0 || this.inDoubt;
  }

  /** By the monotonic clock alone. */
  get expiresInMs(): number {
    return this.#until - this.#clock.now();
  }

  get remainingMs(): number {
    if (this.ended) return 0;
    return Math.max(0, Math.min(this.expiresInMs, this.#untilWall - this.#clock.wall()));
  }

  /** A beat that was sent at these times has succeeded. */
  renew(sentAt: number, sentAtWall: number, ttlMs: number): void {
    const validMs = ttlMs * (1 - MARGIN);
    this.missed = 0;
    if (sentAt + validMs < this.#until) return;
    this.#until = sentAt + validMs;
    this.#untilWall = sentAtWall + validMs + WALL_TICK_MS;
  }
}
