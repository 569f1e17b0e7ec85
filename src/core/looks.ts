import type { Clock } from './clock.js';
import { Deadlines } from './deadlines.js';
import type { LineQuery, LineRef } from './engine.js';
import { AcquireTimeoutError, type Blocker } from './errors.js';
import { EXPLAIN_WITHIN_MS, type Look } from './explanation.js';
import { outside } from './outside.js';
import { lineKey } from './target.js';
import { type ClaimView, type LineView, withTokenAsText } from './view.js';

export interface LooksSetup {
  readonly clock: Clock;
  /** What the labels of this process end with. */
  readonly hostLabel: string;
  /** Absent where the engine can't list its lines. */
  readonly inspect: ((query: LineQuery) => AsyncIterable<LineView>) | undefined;
}

/** Looks at lines, for the messages of errors. All who want to know while one look is under way share it. */
export class Looks {
  readonly #setup: LooksSetup;
  readonly #deadlines: Deadlines;
  /** Under way, by line. */
  readonly #looks = new Map<string, Promise<Look | undefined>>();

  constructor(setup: LooksSetup) {
    this.#setup = setup;
    this.#deadlines = new Deadlines(setup.clock, EXPLAIN_WITHIN_MS);
  }

  at(ref: LineRef): Promise<Look | undefined> {
    const key = lineKey(ref);
    let look = this.#looks.get(key);
    if (!look) {
      // Those whose time is over in the same moment share it, though an engine in this process has answered in between.
      const forget = (): unknown => this.#setup.clock.timer(0, () => this.#looks.delete(key)).unref();
      look = outside(() => this.#look(ref)).finally(forget);
      this.#looks.set(key, look);
    }
    return look;
  }

  /** Why the lock could not be had at once, or in its time: who holds it, if that can be had soon. */
  async busy(ref: LineRef, timeoutMs = 0): Promise<AcquireTimeoutError> {
    const look = await new Promise<Look | undefined>((resolve) => {
      const looking = this.#deadlines.start(() => resolve(undefined), true);
      void this.at(ref).then((seen) => looking.answered() && resolve(seen));
    });
    return new AcquireTimeoutError(ref.name, timeoutMs, {
      holder: look?.holder,
      heldHere: look?.heldHere === true,
      place: look?.places.size,
    });
  }

  end(): void {
    this.#deadlines.end();
  }

  /** Whatever can be learnt, and nothing rather than an error. */
  async #look(ref: LineRef): Promise<Look | undefined> {
    const { inspect, hostLabel } = this.#setup;
    if (!inspect) return undefined;
    try {
      for await (const { kind, claims } of inspect({ name: ref.name })) {
        if (kind !== ref.kind) continue;
        const holder = claims.find(({ state }) => state === 'held');
        const places = new Map(claims.map(({ id }, index) => [id, index]));
        const heldHere = holder?.label.endsWith(`@${hostLabel}`) === true;
        return { holder: holder && blocker(holder), heldHere, places };
      }
    } catch {
      // The wait has timed out in any case.
    }
    return undefined;
  }
}

function blocker({ label, session, token, since }: ClaimView): Blocker {
  return withTokenAsText({ label, session, token, since });
}
