/**
 * npm run model                           the fixed programs, then 1,500 random ones, on all cores
 * npm run model -- --seeds 20000          more of them
 * npm run model -- --seed 1234 --trace    one of them, told step by step
 * npm run model -- --program downgrade    the fixed ones whose name contains the word
 *
 * Exits with 1 if a program broke a promise. Prints each as small as it could be made, and the command that replays it.
 */
import { fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { generate } from './generate.js';
import { play, type Outcome } from './play.js';
import { type Program, show } from './program.js';
import { PROGRAMS } from './programs.js';
import { shrink } from './shrink.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1500' },
    first: { type: 'string', default: '1' },
    seed: { type: 'string' },
    program: { type: 'string' },
    trace: { type: 'boolean', default: false },
    /** Rules, with commas between them, that are known to be broken. */
    ignore: { type: 'string', default: '' },
    /** How many failures are enough. */
    failures: { type: 'string', default: '2' },
    /** Failures are printed as they were made. */
    'no-shrink': { type: 'boolean', default: false },
    /** Used by the parent for its children: run every n-th seed. */
    share: { type: 'string' },
  },
});

const ignore = new Set(values.ignore.split(','));

interface Tally {
  seeds: number;
  events: number;
  grants: number;
  failures: string[];
}

/** Worlds that live side by side share the cost of the event loop's turns; they know nothing of each other. */
const SIDE_BY_SIDE = 16;

async function runSeeds(first: number, last: number, step: number): Promise<Tally> {
  const tally: Tally = { seeds: 0, events: 0, grants: 0, failures: [] };
  const failed: { seed: number; outcome: Outcome }[] = [];
  let next = first;
  const lane = async (): Promise<void> => {
    while (next <= last && failed.length < Number(values.failures)) {
      const seed = next;
      next += step;
      const outcome = await play(generate(seed), { ignore });
      tally.seeds += 1;
      tally.events += outcome.events;
      tally.grants += outcome.grants;
      if (outcome.violations.length > 0) failed.push({ seed, outcome });
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, lane));
  for (const { seed, outcome } of failed) tally.failures.push(await explain(seed, generate(seed), outcome));
  return tally;
}

async function explain(seed: number, program: Program, { violations }: Outcome): Promise<string> {
  const { rule } = violations[0]!;
  const small = values['no-shrink'] ? program : await shrink(program, rule, { ignore });
  const [first] = small === program ? violations : (await play(small, { ignore })).violations;
  const text = `Seed ${seed} broke a promise (${rule}):\n  ${first?.what}\n${show(small)}`;
  return `\n${text}\nreplay: npm run model -- --seed ${seed} --trace`;
}

async function runFixed(word: string): Promise<number> {
  let failed = 0;
  const wanted = PROGRAMS.filter(({ name }) => name.includes(word));
  for (const { name, program } of wanted) {
    const { violations } = await play(program, { trace: values.trace, ignore });
    if (violations.length === 0) continue;
    failed += 1;
    console.log(`\nBroken: ${name}`);
    for (const { rule, what } of violations.slice(0, 5)) console.log(`  ${rule}: ${what}`);
    console.log(`  replay: npm run model -- --program '${name}' --trace`);
  }
  console.log(`model: ${wanted.length} fixed programs, ${failed} failed`);
  return failed;
}

/** Every n-th seed in a process of its own. */
function inChildren(shares: number): Promise<Tally[]> {
  const tallies = Array.from({ length: shares }, (_, share) => {
    const child = fork(import.meta.filename, [...process.argv.slice(2), '--share', `${share}/${shares}`]);
    return new Promise<Tally>((resolve, reject) => {
      child.once('message', (message) => resolve(message as Tally));
      // Not at its exit, which may be seen before its last words.
      child.once('close', (code) => reject(new Error(`a process of the model ended with ${code} and no result`)));
    });
  });
  return Promise.all(tallies);
}

async function runSeed(seed: number): Promise<number> {
  const program = generate(seed);
  if (values.trace) console.log(show(program));
  const outcome = await play(program, { trace: values.trace, ignore });
  if (outcome.violations.length === 0)
    console.log(`Seed ${seed} breaks nothing (${outcome.events} events, ${outcome.grants} grants).`);
  else console.log(await explain(seed, program, outcome));
  return outcome.violations.length;
}

async function main(): Promise<number> {
  if (values.seed !== undefined) return runSeed(Number(values.seed));
  const first = Number(values.first);
  const last = first + Number(values.seeds) - 1;
  if (values.share !== undefined) {
    const [share, shares] = values.share.split('/').map(Number) as [number, number];
    const tally = await runSeeds(first + share, last, shares);
    // What is long is not sent in one go.
    process.send!(tally, () => process.disconnect());
    return 0;
  }
  const fixed = await runFixed(values.program ?? '');
  if (values.program !== undefined || Number(values.seeds) === 0) return fixed;
  const startedAt = performance.now();
  const tallies = await inChildren(Math.min(availableParallelism(), Number(values.seeds)));
  const sum = (pick: (tally: Tally) => number): number => tallies.reduce((total, tally) => total + pick(tally), 0);
  for (const { failures } of tallies) for (const failure of failures) console.log(failure);
  const failed = sum(({ failures }) => failures.length);
  const seconds = (performance.now() - startedAt) / 1000;
  console.log(
    `model: ${sum(({ seeds }) => seeds)} programs, ${sum(({ events }) => events)} events, ` +
      `${sum(({ grants }) => grants)} grants in ${seconds.toFixed(1)} s; ${failed} failed`,
  );
  return fixed + failed;
}

// Nothing of the core may reject unheard; which of the worlds it was is found by running fewer seeds.
process.on('unhandledRejection', (error) => {
  console.log('A promise was rejected and nobody listened:', error);
  process.exit(1);
});
// Expected errors by the thousand: their stacks would cost more than the model.
if (!values.trace) Error.stackTraceLimit = 0;
process.exitCode = (await main()) > 0 ? 1 : 0;
