/**
 * One shard as one client sees it. What is asked for in one turn of the event loop goes to the server as one script
 * call, however many locks it is about; the answers come back in the same order.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Clock, Timer } from '../../core/clock.js';
import type { RedisPort } from './port.js';
import { STEPS } from './steps.js';

interface Step {
  readonly words: readonly string[];
  answer(value: unknown): void;
  fail(error: unknown): void;
}

export interface ShardOptions {
  readonly port: RedisPort;
  readonly clock: Clock;
  /** What the shard's keys begin with. */
  readonly prefix: string;
  readonly epochGuard: boolean;
  /** Whether any of ours waits in this shard. */
  waits(): boolean;
}

/** A script blocks the server while it runs: a step takes some 10 µs. */
const STEPS_AT_ONCE = 100;

/** While a slot migrates, its keys may be on two nodes for a moment. */
const MIGRATION_TRIES = 40;
const MIGRATION_PAUSE_MS = 50;

/** All who wait look when a session should have died; the first of them does the work, so they come one after the other. */
const STAGGER_MS = 50;

export class Shard {
  readonly #options: ShardOptions;
  readonly #keys: readonly string[];
  #queue: Step[] = [];
  #looking: Timer | undefined;
  #lookAt = Number.POSITIVE_INFINITY;

  constructor(options: ShardOptions) {
    this.#options = options;
    this.#keys = ['sessions', 'state', 'order'].map((key) => options.prefix + key);
  }

  get inboxes(): string {
    return `${this.#options.prefix}inbox:`;
  }

  step(words: readonly string[]): Promise<unknown> {
    return new Promise((answer, fail) => {
      this.#queue.push({ words, answer, fail });
      // After all that is ready to run has run: then nothing more joins this turn.
      if (this.#queue.length === 1) process.nextTick(() => this.#send());
    });
  }

  close(): void {
    this.#looking?.close();
    this.#lookAt = Number.NEGATIVE_INFINITY;
  }

  #send(): void {
    const queue = this.#queue;
    this.#queue = [];
    for (let at = 0; at < queue.length; at += STEPS_AT_ONCE) void this.#perform(queue.slice(at, at + STEPS_AT_ONCE));
  }

  async #perform(steps: readonly Step[]): Promise<void> {
    try {
      const [lookMs, ...answers] = await this.#call(steps);
      for (const [at, step] of steps.entries()) step.answer(answers[at]);
      if (Number(lookMs) >= 0) this.#lookIn(Number(lookMs));
    } catch (error) {
      for (const step of steps) step.fail(error);
    }
  }

  async #call(steps: readonly Step[]): Promise<unknown[]> {
    const { port, epochGuard } = this.#options;
    const args = [epochGuard ? '1' : '0', this.inboxes].concat(...steps.map(({ words }) => words));
    for (let tried = 1; ; tried += 1) {
      try {
        return (await port.run(STEPS, this.#keys, args)) as unknown[];
      } catch (error) {
        if (tried === MIGRATION_TRIES || !isMigrating(error)) throw error;
      }
      await pause(MIGRATION_PAUSE_MS);
    }
  }

  /** The dead send nothing: those who wait for them look by themselves. The beat looks, too, but seldom. */
  #lookIn(ms: number): void {
    const { clock, waits } = this.#options;
    if (!waits()) return;
    const delayMs = ms + 1 + clock.random() * STAGGER_MS;
    const at = clock.now() + delayMs;
    if (this.#lookAt <= at) return;
    this.#looking?.close();
    this.#lookAt = at;
    this.#looking = clock.timer(delayMs, () => {
      this.#lookAt = Number.POSITIVE_INFINITY;
      if (!waits()) return;
      this.step(['reap', '', '0']).catch(() => {
        // The next beat brings the next time to look.
      });
    });
    this.#looking.unref();
  }
}

/** The command was not performed. */
function isMigrating(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('TRYAGAIN');
}
