import type { Claim, ClaimRef, Place, Pulse, Roster, Session } from './engine.js';
import { EngineError } from './errors.js';

/**
 * An engine that throws instead of rejecting has only another way to fail: in a timer of ours it would end the process. One that answers
 * without a promise has answered.
 */
export class GuardedSession implements Session {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  get ttlMs(): number {
    return this.#session.ttlMs;
  }

  enter(claim: Claim): Promise<Place> {
    try {
      return Promise.resolve(this.#session.enter(claim));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  leave(claim: ClaimRef): Promise<boolean> {
    try {
      return Promise.resolve(this.#session.leave(claim));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  reweigh(claim: Claim): Promise<void> {
    try {
      return Promise.resolve(this.#session.reweigh(claim));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  beat(roster: Roster): Promise<Pulse> {
    try {
      return Promise.resolve(this.#session.beat(roster)).then(checkedPulse);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  close(): Promise<void> {
    try {
      return Promise.resolve(this.#session.close());
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

function checkedPulse(pulse: Pulse): Pulse {
  if (typeof pulse?.alive === 'boolean') return pulse;
  throw new EngineError('The engine answered a beat with something else than a pulse: that is a fault of the engine.');
}
