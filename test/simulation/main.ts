/**
 * npm run sim                           2,000 seeds, on all cores
 * npm run sim -- --seeds 20000          more of them
 * npm run sim -- --seed 1234 --trace    one seed, told event by event
 *
 * Exits with 1 at the first seeds that break a promise, and prints the command that replays each.
 */
import { fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { type Outcome, simulate } from './simulate.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '2000' },
    first: { type: 'string', default: '1' },
    seed: { type: 'string' },
    trace: { type: 'boolean', default: false },
    /** Used by the parent for its children: run every n-th seed. */
    share: { type: 'string' },
    'stop-at-first': { type: 'boolean', default: false },
  },
});

interface Tally {
  seeds: number;
  events: number;
  grants: number;
  simulatedMs: number;
  failures: Outcome[];
}

/** Worlds that live side by side share the cost of the event loop's turns; they know nothing of each other. */
const SIDE_BY_SIDE = 16;

async function runSeeds(first: number, last: number, step: number): Promise<Tally> {
  const tally: Tally = { seeds: 0, events: 0, grants: 0, simulatedMs: 0, failures: [] };
  let next = first;
  const enough = values['stop-at-first'] ? 1 : 5;
  const lane = async (): Promise<void> => {
    while (next <= last && tally.failures.length < enough) {
      const seed = next;
      next += step;
      add(tally, await simulate(seed));
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, lane));
  return tally;
}

function add(tally: Tally, outcome: Outcome): void {
  tally.seeds += 1;
  tally.events += outcome.events;
  tally.grants += outcome.grants;
  tally.simulatedMs += outcome.simulatedMs;
  if (outcome.violations.length > 0) tally.failures.push(outcome);
}

/** Every n-th seed in a process of its own. With `--stop-at-first`, one that has found something ends the others. */
function inChildren(shares: number): Promise<Tally[]> {
  const nothing: Tally = { seeds: 0, events: 0, grants: 0, simulatedMs: 0, failures: [] };
  const children = Array.from({ length: shares }, (_, share) =>
    fork(import.meta.filename, [...process.argv.slice(2), '--share', `${share}/${shares}`]),
  );
  const tallies = children.map(
    (child) =>
      new Promise<Tally>((resolve, reject) => {
        child.once('message', (message) => {
          resolve(message as Tally);
          if (!values['stop-at-first'] || (message as Tally).failures.length === 0) return;
          for (const other of children) if (other !== child) other.kill();
        });
        // Not at its exit, which may be seen before its last words.
        child.once('close', (code, signal) => {
          if (signal) resolve(nothing);
          else reject(new Error(`a simulation process ended with ${code} and no result`));
        });
      }),
  );
  return Promise.all(tallies);
}

function report({ failures }: Tally): void {
  for (const { seed, violations } of failures) {
    console.log(`\nSeed ${seed} broke a promise:`);
    for (const violation of violations.slice(0, 5)) console.log(`  ${violation}`);
    console.log(`  replay: npm run sim -- --seed ${seed} --trace`);
  }
}

async function main(): Promise<void> {
  const first = Number(values.first);
  const last = first + Number(values.seeds) - 1;
  if (values.seed !== undefined) {
    const outcome = await simulate(Number(values.seed), values.trace);
    report({ seeds: 1, ...outcome, failures: outcome.violations.length > 0 ? [outcome] : [] });
    console.log(JSON.stringify({ ...outcome, violations: outcome.violations.length }));
    process.exitCode = outcome.violations.length > 0 ? 1 : 0;
    return;
  }
  if (values.share !== undefined) {
    const [share, shares] = values.share.split('/').map(Number) as [number, number];
    process.send!(await runSeeds(first + share, last, shares));
    process.disconnect();
    return;
  }
  const startedAt = performance.now();
  const shares = Math.min(availableParallelism(), Number(values.seeds));
  const tallies = await inChildren(shares);
  const sum = (pick: (tally: Tally) => number): number => tallies.reduce((total, tally) => total + pick(tally), 0);
  for (const tally of tallies) report(tally);
  const failed = sum(({ failures }) => failures.length);
  const seconds = (performance.now() - startedAt) / 1000;
  console.log(
    `simulation: ${sum(({ seeds }) => seeds)} seeds, ${(sum(({ simulatedMs }) => simulatedMs) / 3_600_000).toFixed(1)} simulated hours, ` +
      `${sum(({ events }) => events)} events, ${sum(({ grants }) => grants)} grants in ${seconds.toFixed(1)} s; ${failed} failed`,
  );
  process.exitCode = failed > 0 ? 1 : 0;
}

// Nothing of the core may reject unheard; which of the worlds it was is found by running fewer seeds.
process.on('unhandledRejection', (error) => {
  console.log('A promise was rejected and nobody listened:', error);
  process.exit(1);
});
// Expected errors by the thousand: their stacks would cost more than the simulation.
if (!values.trace) Error.stackTraceLimit = 0;
await main();
