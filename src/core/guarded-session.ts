import type { Claim, ClaimRef, Place, Pulse, Roster, Session } from './engine.js';

/** An engine that throws instead of rejecting has only another way to fail: in a timer of ours it would end the process. */
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
      return this.#session.enter(claim);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  leave(claim: ClaimRef): Promise<boolean> {
    try {
      return this.#session.leave(claim);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  reweigh(claim: Claim): Promise<void> {
    try {
      return this.#session.reweigh(claim);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  beat(roster: Roster): Promise<Pulse> {
    try {
      return this.#session.beat(roster);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  close(): Promise<void> {
    try {
      return this.#session.close();
    } catch (error) {
      return Promise.reject(error);
    }
  }
}
