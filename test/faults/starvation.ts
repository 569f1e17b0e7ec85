/**
 * A busy machine may keep a process from running, which looks to it as if it had been stopped: leases are lost, and
 * nothing is wrong. Whoever is late by a quarter of the ttl in all, within one ttl, writes so into the history.
 */
import { type HistoryEvent, nowMicros, STARVED } from './history.js';

const SHARE = 0.25;

/** Whether being late by so many microseconds may cost a lease. */
export function isStarving(lateMicros: number, ttlMs: number): boolean {
  return lateMicros > SHARE * ttlMs * 1_000;
}

export interface StarvationOptions {
  /** Whom it is told of: a worker, or `link` for the process that all connections may go through. */
  readonly target: string;
  readonly ttlMs: number;
  /** How far apart the calls of `look` should be. */
  readonly everyMs: number;
  readonly id: () => string;
  readonly write: (event: HistoryEvent) => void;
}

export class Starvation {
  readonly #options: StarvationOptions;
  #last = nowMicros();
  #delays: { readonly from: number; readonly to: number }[] = [];

  constructor(options: StarvationOptions) {
    this.#options = options;
  }

  look(now = nowMicros()): void {
    const { ttlMs, everyMs } = this.#options;
    if (now - this.#last > 2_000 * everyMs) this.#delays.push({ from: this.#last, to: now });
    this.#last = now;
    this.#delays = this.#delays.filter(({ to }) => to > now - ttlMs * 1_000);
    const late = this.#delays.reduce((sum, { from, to }) => sum + to - from - 1_000 * everyMs, 0);
    if (isStarving(late, ttlMs)) this.#tell(this.#delays[0]!.from, now);
  }

  /** What has been going on is known, and is not starvation. */
  forgive(): void {
    this.#last = nowMicros();
  }

  #tell(from: number, to: number): void {
    const { target, id, write } = this.#options;
    const fault = { kind: 'fault', id: id(), nemesis: STARVED, target } as const;
    write({ ...fault, at: from, what: 'begin' });
    write({ ...fault, at: to, what: 'end' });
    this.#delays = [];
  }
}
