/**
 * What a session asks for at once goes as one call: one transaction, and one wait for the disk, however many locks it is
 * about. While calls are under way, the rest gathers for the next one, so a busy server gets larger calls, not more.
 */
import { EngineError } from '../../core/errors.js';
import { nextTick } from '../../core/real-time.js';

/** A function of protocol.ts, `enter` or `leave`, and what it gets beside session and namespace. */
export type Words = readonly [routine: 'enter' | 'leave', id: string, line: string, ...rest: readonly unknown[]];

interface Step {
  readonly words: Words;
  answer(value: string | null): void;
  fail(error: unknown): void;
}

export interface StepCalls {
  one(words: Words): Promise<string | null>;
  /** All of them in one transaction. */
  many(steps: readonly Words[]): Promise<readonly (string | null)[]>;
}

/** Each step keeps its line locked until all of them are done, and the server has room for some thousand locks in all. */
const STEPS_AT_ONCE = 32;
/** Fewer than a pool has connections: others want some, too. */
const CALLS_AT_ONCE = 3;

export class Batches {
  readonly #calls: StepCalls;
  #queue: Step[] = [];
  /** Lines that a call under way is about. Calls may overtake each other, the steps of one line may not. */
  readonly #busy = new Set<string>();
  #running = 0;
  /** Whether this turn of the event loop ends with a call. */
  #due = false;

  constructor(calls: StepCalls) {
    this.#calls = calls;
  }

  ask(...words: Words): Promise<string | null> {
    return new Promise((answer, fail) => {
      this.#queue.push({ words, answer, fail });
      // After all that is ready to run has run: then nothing more joins this turn.
      if (!this.#due) nextTick(() => this.#send());
      this.#due = true;
    });
  }

  #send(): void {
    this.#due = false;
    while (this.#running < CALLS_AT_ONCE) {
      const steps = this.#next();
      if (steps.length === 0) return;
      const lines = steps.map(({ words }) => words[2]);
      for (const line of lines) this.#busy.add(line);
      this.#running += 1;
      void this.#perform(steps).finally(() => {
        for (const line of lines) this.#busy.delete(line);
        this.#running -= 1;
        this.#send();
      });
    }
  }

  #next(): Step[] {
    const next: Step[] = [];
    this.#queue = this.#queue.filter((step) => {
      if (next.length === STEPS_AT_ONCE || this.#busy.has(step.words[2])) return true;
      next.push(step);
      return false;
    });
    return next;
  }

  async #perform(steps: readonly Step[]): Promise<void> {
    try {
      const words = steps.map((step) => step.words);
      const answers = steps.length === 1 ? [await this.#calls.one(words[0]!)] : await this.#calls.many(words);
      for (const [at, step] of steps.entries()) step.answer(answers[at] ?? null);
    } catch (error) {
      // What can't be cured may be about one of them: the others must not fail with it.
      const alone = steps.length > 1 && error instanceof EngineError && !error.retryable;
      for (const step of steps) {
        if (alone) await this.#perform([step]);
        else step.fail(error);
      }
    }
  }
}
