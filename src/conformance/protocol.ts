import assert from 'node:assert/strict';
import {
  type Claim,
  type Engine,
  EngineError,
  type LineKind,
  type Loss,
  type OpenOptions,
  type Pulse,
  type Roster,
  type Session,
} from '../index.js';

/** The weight and the capacity of exclusive use, as engines get them from the core. */
export const ALL = 2 ** 31 - 1;

export interface ClaimSpec {
  readonly name: string;
  readonly kind?: LineKind;
  readonly weight?: number;
  readonly capacity?: number;
  readonly wait?: boolean;
}

export interface Having {
  readonly held?: readonly Claim[];
  readonly waiting?: readonly Claim[];
  readonly unsettled?: readonly Claim[];
}

/**
 * One session spoken to directly, and what the engine told it. It does nothing by itself: it never beats, never leaves
 * what it lost, never repeats a call, so that a case can do all of this in whatever order it likes.
 */
export class Actor {
  readonly session: Session;
  readonly #alias: string;
  readonly #grants: ReadonlyMap<string, bigint>;
  readonly #losses: ReadonlyMap<string, Loss>;
  #serial = 0;

  private constructor(
    session: Session,
    alias: string,
    news: { grants: Map<string, bigint>; losses: Map<string, Loss> },
  ) {
    this.session = session;
    this.#alias = alias;
    this.#grants = news.grants;
    this.#losses = news.losses;
  }

  static async open(engine: Engine, options: OpenOptions, alias: string): Promise<Actor> {
    const news = { grants: new Map<string, bigint>(), losses: new Map<string, Loss>() };
    const session = await engine.open(options, {
      granted: (id, token) => void news.grants.set(id, token),
      lost: (id, loss) => void news.losses.set(id, loss),
      ended: () => {},
      hinted: () => {},
    });
    return new Actor(session, alias, news);
  }

  /** A claim with an id of its own; it stands nowhere yet. */
  claim({ name, kind = 'lock', weight = ALL, capacity = ALL, wait = true }: ClaimSpec): Claim {
    this.#serial += 1;
    const id = `${this.#alias}-${this.#serial}`;
    const note = JSON.stringify({ label: 'conformance' });
    return { id, serial: this.#serial, line: { kind, name }, weight, capacity, wait, note };
  }

  /** Enters a new claim that must hold at once. */
  async hold(spec: ClaimSpec): Promise<{ claim: Claim; token: bigint }> {
    const claim = this.claim(spec);
    const place = await this.session.enter(claim);
    assert.ok(place.state === 'held', `the claim should hold at once, but the answer is ${place.state}`);
    return { claim, token: place.token };
  }

  /** Enters a new claim that must wait. */
  async queue(spec: ClaimSpec): Promise<Claim> {
    const claim = this.claim(spec);
    assert.equal((await this.session.enter(claim)).state, 'waiting');
    return claim;
  }

  /** Whether a claim of this kind would hold now. Leaves nothing behind. */
  async couldHold(spec: ClaimSpec): Promise<boolean> {
    const claim = this.claim({ ...spec, wait: false });
    const { state } = await this.session.enter(claim);
    if (state === 'held') await this.session.leave(claim);
    return state === 'held';
  }

  /** The token of a grant that the engine told us of. */
  grantOf({ id }: Claim): bigint | undefined {
    return this.#grants.get(id);
  }

  lossOf({ id }: Claim): Loss | undefined {
    return this.#losses.get(id);
  }

  beat(having: Having = {}): Promise<Pulse> {
    return this.beatWith(roster(having));
  }

  /** Since when it proves that we live is the engine's own affair. */
  async beatWith(having: Roster): Promise<Pulse> {
    const pulse = await this.session.beat(having);
    if (!pulse.alive) return pulse;
    const { since: _since, ...rest } = pulse;
    return rest;
  }
}

/** As often as a call with a short time of its own may have to be repeated on a busy machine. */
const TRIES = 10;

/** What the engine says, not that it could not be asked in time: a session with a short ttl has little of that. */
export async function answerTo<T>(ask: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof EngineError && error.retryable) || attempt === TRIES) throw error;
    }
  }
}

export function roster({ held = [], waiting = [], unsettled = [] }: Having): Roster {
  const settled = [...held, ...waiting];
  return {
    count: settled.length,
    held: held.length,
    checksum: settled.reduce((sum, { serial }) => (sum + serial) >>> 0, 0),
    unsettled: unsettled.map(({ id }) => id),
  };
}
