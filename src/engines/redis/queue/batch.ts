/**
 * One shard as one client sees it. What is asked for in one turn of the event loop goes to the server as one script
 * call, however many locks it is about; the answers come back in the same order.
 */
import type { Clock } from '../../../core/clock.js';
import { nextTick, setTimeout } from '../../../core/real-time.js';
import { DeathWatch } from '../../../kit/death-watch.js';
import { EngineError } from '../../../core/errors.js';
import { defineScript, type RedisPort, type Script } from '../client/port.js';
import { guardWord } from '../epoch-guard.js';
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
  /** How long the epoch guard lasts at least; undefined: there is none. */
  readonly leastGuardMs: number | undefined;
  /** Whether any of ours waits in this shard. */
  readonly waits: () => boolean;
}

/** A script blocks the server while it runs: a step takes some 10 µs. */
const STEPS_AT_ONCE = 100;

/**
 * A claim that stands has the same answer again, and the dead are dead. Not a leave: one that finds nothing the second time would
 * be taken for a loss.
 */
const REPEATABLE: ReadonlySet<string> = new Set(['enter', 'reap']);
const REPEATABLE_STEPS: Script = { ...STEPS, repeatable: true };

/** While a slot migrates, its keys may be on two nodes for a moment. */
const MIGRATION_TRIES = 40;
const MIGRATION_PAUSE_MS = 50;

/** What the script answers when it did not get through with what is due. */
const MORE = -2;

export class Shard {
  readonly #options: ShardOptions;
  readonly #keys: readonly string[];
  /** What stands before the steps of every call. */
  readonly #head: readonly string[];
  #queue: Step[] = [];
  readonly #deaths: DeathWatch;

  constructor(options: ShardOptions) {
    this.#options = options;
    this.#keys = ['sessions', 'state', 'order'].map((key) => options.prefix + key);
    const { clock, waits } = options;
    this.#deaths = new DeathWatch({ clock, waits, look: () => this.#look() });
    this.#head = [guardWord(options.leastGuardMs), this.inboxes];
  }

  get inboxes(): string {
    return `${this.#options.prefix}inbox:`;
  }

  step(words: readonly string[]): Promise<unknown> {
    return new Promise((answer, fail) => {
      this.#queue.push({ words, answer, fail });
      // After all that is ready to run has run: then nothing more joins this turn.
      if (this.#queue.length === 1) nextTick(() => this.#send());
    });
  }

  close(): void {
    this.#deaths.close();
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
    const script = steps.every(({ words: [what] }) => REPEATABLE.has(what!)) ? REPEATABLE_STEPS : STEPS;
    this.#options.port.run(script, this.#keys, args).then(
      (answers) => this.#answered(steps, answers as readonly unknown[]),
      (error: unknown) => {
        if (tried < MIGRATION_TRIES && isMigrating(error)) {
          setTimeout(() => this.#perform(steps, tried + 1), MIGRATION_PAUSE_MS);
        } else if (steps.length > 1 && (isFull(error) || isDamage(error))) {
          // An enter needs room; what frees or renews does not, and must not fail with it. Nor must one name fail with another.
          for (const step of steps) this.#perform([step]);
        } else {
          void this.#failed(steps, error);
        }
      },
    );
  }

  async #failed(steps: readonly Step[], error: unknown): Promise<void> {
    const cause = isDamage(error) ? damaged(await this.#damagedKey(), error) : error;
    for (const step of steps) step.fail(cause);
  }

  /** The one that has another type than ours; else it is a record of the state that can't be read. */
  async #damagedKey(): Promise<string> {
    const found = await this.#options.port.run(DAMAGED, this.#keys, []).catch(() => 2);
    return this.#keys[Number(found) - 1] ?? this.#keys[1]!;
  }

  #answered(steps: readonly Step[], answers: readonly unknown[]): void {
    for (const [at, step] of steps.entries()) step.answer(answers[at + 1]);
    const lookMs = Number(answers[0]);
    if (lookMs === MORE) this.#look();
    else this.#deaths.expect(lookMs);
  }

  /** The beat looks, too, but seldom. */
  #look(): void {
    this.step(['reap', '', '0']).catch(() => {
      // The next beat brings the next time to look.
    });
  }
}

/** KEYS: as those of the steps. Answer: which of them has another type than ours; 2, the state, if none has. O(1). */
const DAMAGED = defineScript(String.raw`
local function fails(command, key)
  local answer = redis.pcall(command, key, '')
  return type(answer) == 'table' and answer.err ~= nil
end
return fails('ZSCORE', KEYS[1]) and 1 or fails('ZSCORE', KEYS[3]) and 3 or 2
`);

/** The script met what it can't have written: a key of another type, a record that is none. Everything in it may be repeated. */
function isDamage(error: unknown): boolean {
  return (
    error instanceof Error &&
    /WRONGTYPE|user_script:\d+:.*(bad argument|data string too short|attempt to)/s.test(error.message)
  );
}

function damaged(key: string, error: unknown): EngineError {
  return new EngineError(
    `The key ${key} holds what Holdfast did not write. Delete it: all who have locks there are told that they are lost. ${(error as Error).message}`,
    { cause: error, retryable: false },
  );
}

/** Nothing of the call was performed. */
function isFull(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('OOM');
}

/** Nothing of the call was performed. */
function isMigrating(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('TRYAGAIN');
}
