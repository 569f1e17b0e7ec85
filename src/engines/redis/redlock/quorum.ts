/** Several independent servers that are asked together. What more than half of them say is decided. */
import type { Clock } from '../../../core/clock.js';
import { Deadlines } from '../../../core/deadlines.js';
import { EngineError } from '../../../core/errors.js';
import type { RedisPort } from '../client/port.js';

/** What the nodes have answered so far. */
export interface Tally<T> {
  readonly answers: T[];
  /** Could not be asked, or not in time. */
  silent: number;
  /** Have not answered yet. */
  open: number;
  lastError: unknown;
}

export class Quorum {
  readonly nodes: readonly RedisPort[];
  /** More than half. */
  readonly size: number;
  readonly #deadlines: Deadlines;

  /** @param patienceMs how long one node may take before it counts as silent. */
  constructor(nodes: readonly RedisPort[], clock: Clock, patienceMs: number) {
    this.nodes = nodes;
    this.size = Math.floor(nodes.length / 2) + 1;
    this.#deadlines = new Deadlines(clock, patienceMs);
  }

  /**
   * Asks all nodes at once, and is done as soon as `decided` says so: nobody waits for a node that hangs if the others
   * suffice. Never rejects; what a node answers later is dropped.
   */
  ask<T>(question: (node: RedisPort) => Promise<T>, decided: (tally: Tally<T>) => boolean): Promise<Tally<T>> {
    const tally: Tally<T> = { answers: [], silent: 0, open: this.nodes.length, lastError: undefined };
    return new Promise((resolve) => {
      const heard = (): void => {
        tally.open -= 1;
        // A tally that is decided is the caller's: late answers must not change it.
        if (tally.open === 0 || decided(tally)) resolve({ ...tally, answers: [...tally.answers] });
      };
      for (const node of this.nodes) {
        this.#deadlines
          .race(question(node), () => new EngineError('A node did not answer in time.'))
          .then(
            (answer) => {
              tally.answers.push(answer);
              heard();
            },
            (error: unknown) => {
              tally.silent += 1;
              tally.lastError = error;
              heard();
            },
          );
      }
    });
  }

  /** So many nodes are silent that nothing can be decided. */
  unreachable(silent: number, lastError: unknown): EngineError {
    const reason = lastError instanceof Error ? ` Last: ${lastError.message}` : '';
    const missing = `${silent} of ${this.nodes.length} nodes did not answer, and ${this.size} are needed.`;
    return new EngineError(missing + reason, { cause: lastError });
  }
}

/** Resolves when so many have; rejects when so many no longer can. */
export function enough(promises: readonly Promise<unknown>[], count: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let done = 0;
    let failed = 0;
    for (const promise of promises) {
      promise.then(
        () => {
          done += 1;
          if (done === count) resolve();
        },
        (error: unknown) => {
          failed += 1;
          if (promises.length - failed < count) reject(error);
        },
      );
    }
  });
}
