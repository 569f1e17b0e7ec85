/**
 * The dead send nothing: those who wait for them look by themselves, when the next session should have died. Answers of the
 * server say when that is; the earliest counts.
 */
import type { Clock, Timer } from '../core/clock.js';

export interface DeathWatchSetup {
  readonly clock: Clock;
  /** Whether any of ours waits: nobody else has to look. */
  readonly waits: () => boolean;
  readonly look: () => void;
}

/** All who wait look when a session should have died; the first of them does the work, so they come one after the other. */
const STAGGER_MS = 50;

export class DeathWatch {
  readonly #setup: DeathWatchSetup;
  #timer: Timer | undefined;
  #at = Number.POSITIVE_INFINITY;

  constructor(setup: DeathWatchSetup) {
    this.#setup = setup;
  }

  /** @param inMs when a session should have died; negative if there is none. */
  expect(inMs: number): void {
    if (inMs >= 0 && this.#setup.waits()) this.#lookIn(inMs);
  }

  /** For ever. */
  close(): void {
    this.#timer?.close();
    this.#at = Number.NEGATIVE_INFINITY;
  }

  #lookIn(inMs: number): void {
    const { clock, waits, look } = this.#setup;
    const delayMs = inMs + 1 + clock.random() * STAGGER_MS;
    const at = clock.now() + delayMs;
    if (this.#at <= at) return;
    this.#timer?.close();
    this.#at = at;
    this.#timer = clock.timer(delayMs, () => {
      this.#at = Number.POSITIVE_INFINITY;
      if (waits()) look();
    });
    this.#timer.unref();
  }
}
