import type { Clock, Timer } from './clock.js';
import type { Guard } from './engine.js';
import { EngineError, quote } from './errors.js';
import { publishGuard } from './telemetry.js';

/** Whoever waited for the guard to end is granted a little later than that. */
const LATELY_MS = 2_000;

/** The guard of one realm's server, as it was told last: a server without its memory grants nothing for a while. */
export class ServerGuard {
  readonly #clock: Clock;
  /** What and where the engine is, for people. */
  readonly #title: string;
  #beganAt = 0;
  #endsAt = Number.NEGATIVE_INFINITY;
  #remedy: string | undefined;
  /** Runs while it lasts. */
  #timer: Timer | undefined;

  constructor(clock: Clock, title: string) {
    this.#clock = clock;
    this.#title = title;
  }

  /** Undefined: it does not last. */
  get endsInMs(): number | undefined {
    const leftMs = this.#endsAt - this.#clock.now();
    return leftMs > 0 ? leftMs : undefined;
  }

  /** It lasts, or has ended so lately that those who waited for that may not be served yet. */
  get lately(): boolean {
    return this.#clock.now() < this.#endsAt + LATELY_MS;
  }

  told({ endsInMs, ageMs, remedy }: Guard): void {
    const now = this.#clock.now();
    this.#beganAt = now - ageMs;
    this.#endsAt = now + endsInMs;
    this.#remedy = remedy;
    if (!this.#timer) publishGuard({ state: 'begun', engine: this.#title, endsInMs });
    this.#timer?.close();
    this.#timer = this.#clock.timer(endsInMs, () => this.#ended());
    this.#timer.unref();
  }

  /** For people, as it is now. */
  get words(): string {
    const ageMs = this.#clock.now() - this.#beganAt;
    const remedy = this.#remedy === undefined ? '' : `; ${this.#remedy}`;
    return (
      `this server started ${seconds(ageMs)} ago, or was found restarted or promoted then; locks are granted in ` +
      `${seconds(this.endsInMs ?? 0)}, because a server that lost its memory must not grant twice${remedy}`
    );
  }

  /** For whoever does not wait for it to end. */
  error(lock: string): EngineError {
    const retryAfterMs = Math.max(1, Math.ceil(this.endsInMs ?? 0));
    return new EngineError(`${quote(lock)} can't be granted yet by ${this.#title}: ${this.words}.`, {
      ...{ retryAfterMs, lock, engine: this.#title },
    });
  }

  close(): void {
    this.#timer?.close();
    this.#timer = undefined;
  }

  #ended(): void {
    this.#timer = undefined;
    publishGuard({ state: 'ended', engine: this.#title, endsInMs: 0 });
  }
}

function seconds(ms: number): string {
  return `${Math.max(0, Math.ceil(ms / 1_000))} s`;
}
