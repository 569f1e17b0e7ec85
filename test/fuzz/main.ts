/**
 * `npm run fuzz -- [target …] [--inputs N] [--seed S]`: whatever reads what others have written is given inputs that are nearly
 * right. The same seed gives the same inputs; what fails is printed with the seed of its round.
 *
 * Mutators of our own on valid inputs, not a coverage-guided fuzzer. The only one for Node.js that is alive is @jazzer.js/core:
 * version 4.0.0 brings a libFuzzer that wants a newer C library (2.38) than a stable Debian has, and 2.1.0 fetches or compiles
 * its own when it is installed. The grammars are small, and the corpora have every kind of message.
 */
import { Mutator } from './mutate.js';
import { type Target, TARGETS } from './targets.js';

const DEFAULT_INPUTS = 20_000;
const ROUND = 1_000;
/** A round takes milliseconds. One that takes as long as this has met an input that costs far more than its length. */
const SLOWEST_ROUND_MS = 20_000;
const MOST_GROWTH_MIB = 64;

function option(words: string[], name: string): number | undefined {
  const at = words.indexOf(name);
  return at === -1 ? undefined : Number(words.splice(at, 2)[1]);
}

function isAnswer(error: unknown, { errors }: Target): boolean {
  return errors.some((kind) => error instanceof kind);
}

/** One round. Its seed is enough to repeat it. */
function round(target: Target, seed: number, inputs: number): void {
  const mutator = new Mutator(seed);
  for (let input = 0; input < inputs; input += 1) {
    try {
      target.run(mutator);
    } catch (error) {
      if (!isAnswer(error, target)) throw new Error(`input ${input} of seed ${seed}`, { cause: error });
    }
  }
}

async function fuzz(name: string, inputs: number, firstSeed: number): Promise<void> {
  const target = TARGETS[name];
  if (!target) throw new Error(`no target ${name}; there are ${Object.keys(TARGETS).join(', ')}`);
  const startedAt = performance.now();
  let before: number | undefined;
  for (let done = 0; done < inputs; done += ROUND) {
    const roundAt = performance.now();
    round(target, firstSeed + done, Math.min(ROUND, inputs - done));
    // What is rejected later is heard of here.
    await new Promise(setImmediate);
    if (performance.now() - roundAt > SLOWEST_ROUND_MS) throw new Error(`seed ${firstSeed + done} is too slow`);
    // The first rounds are those in which the code itself is compiled.
    if (done === 4 * ROUND) before = process.memoryUsage().heapUsed;
  }
  const grownMiB = before === undefined ? 0 : (process.memoryUsage().heapUsed - before) / 2 ** 20;
  if (grownMiB > MOST_GROWTH_MIB) throw new Error(`${Math.round(grownMiB)} MiB are left`);
  console.log(`${name}: ${inputs} inputs in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);
}

const words = process.argv.slice(2);
const inputs = option(words, '--inputs') ?? DEFAULT_INPUTS;
const seed = option(words, '--seed') ?? 1;
for (const name of words.length > 0 ? words : Object.keys(TARGETS)) await fuzz(name, inputs, seed);
