/**
 * One shard as one client sees it. What is asked for in one turn of the event loop goes to the server as one script
 * call, however many locks it is about; the answers come back in the same order.
 */
import type { Clock, Timer } from '../../../core/clock.js';
import type { RedisPort } from '../client/port.js';
import { STEPS } from './protocol.js';

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
  readonly waits: () => boolean;
}

/** A script blocks the server while it runs: a step takes some 10 µs. */
const STEPS_AT_ONCE = 100;

/** While a slot migrates, its keys may be on two nodes for a moment. */
const MIGRATION_TRIES = 40;
const MIGRATION_PAUSE_MS = 50;

/** What the script answers when it did not get through with what is due. */
const MORE = -2;

/** All who wait look when a session should have died; the first of them does the work, so they come one after the other. */
const STAGGER_MS = 50;

export class Shard {
  readonly #options: ShardOptions;
  readonly #keys: readonly string[];
  /** What stands before the steps of every call. */
  readonly #head: readonly string[];
  #queue: Step[] = [];
  #looking: Timer | undefined;
  #lookAt = Number.POSITIVE_INFINITY;

  constructor(options: ShardOptions) {
    this.#options = options;
    this.#keys = ['sessions', 'state', 'order'].map((key) => options.prefix + key);
    this.#head = [options.epochGuard ? '1' : '0', this.inboxes];
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
    if (queue.length <= STEPS_AT_ONCE) return this.#perform(queue);
    for (let at = 0; at < queue.length; at += STEPS_AT_ONCE) this.#perform(queue.slice(at, at + STEPS_AT_ONCE));
  }

  #perform(steps: readonly Step[], tried = 1): void {
    const args = [...this.#head];
    for (const { words } of steps) args.push(...words);
    this.#options.port.run(STEPS, this.#keys, args).then(
      (answers) => this.#answered(steps, answers as readonly unknown[]),
      (error: unknown) => {
        if (tried < MIGRATION_TRIES && isMigrating(error)) {
          setTimeout(() => this.#perform(steps, tried + 1), MIGRATION_PAUSE_MS);
        } else if (steps.length > 1 && isFull(error)) {
          // An enter needs room; what frees or renews does not, and must not fail with it.
          for (const step of steps) this.#perform([step]);
        } else {
          for (const step of steps) step.fail(error);
        }
      },
    );
  }

  #answered(steps: readonly Step[], answers: readonly unknown[]): void {
    for (let at = 0; at < steps.length; at += 1) steps[at]!.answer(answers[at + 1]);
    const lookMs = Number(answers[0]);
    if (lookMs === MORE) this.#look();
    else if (lookMs >= 0) this.#lookIn(lookMs);
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
      if (waits()) this.#look();
    });
    this.#looking.unref();
  }

  #look(): void {
    this.step(['reap', '', '0']).catch(() => {
      // The next beat brings the next time to look.
    });
  }
}

/** Nothing of the call was performed. */
function isFull(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('OOM');
}

/** Nothing of the call was performed. */
function isMigrating(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('TRYAGAIN');
}
