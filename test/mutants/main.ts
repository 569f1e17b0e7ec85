/**
 * The mutation gate: bugs that we plant ourselves, each of which a machine must find.
 *
 * npm run mutants                      those of the core, by the simulation, the model of the public API, or a test of their own
 * npm run mutants -- --sample          a third of them, as in CI
 * npm run mutants -- floor             those of the core whose name contains the word
 * npm run mutants -- engines           those of engines, fences and the command line, each by its own test
 * npm run mutants -- engines redlock   those of whose engine or name contains the word
 * npm run mutants -- engines --sample  the few that CI hunts
 */
import { parseArgs } from 'node:util';
import { API_BUGS, CORE_BUGS, TESTED_BUGS } from './core.js';
import { ENGINE_BUGS } from './engines/index.js';
import { type Bug, check, uproot } from './plant.js';
import { model, simulate } from './simulate.js';
import { runTest, type TestedBug } from './test-run.js';

/** Tests wait most of the time, for servers or for what hangs; the simulation and the model take every core by themselves. */
const TESTS_AT_ONCE = 2;

interface Hunt {
  readonly bug: Bug;
  readonly atOnce: number;
  readonly find: () => string | undefined | Promise<string | undefined>;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { sample: { type: 'boolean', default: false } },
});
const engines = positionals[0] === 'engines';
const word = positionals[engines ? 1 : 0] ?? '';

function coreHunts(): Hunt[] {
  return [
    ...sampled(CORE_BUGS).map((bug) => ({ bug, atOnce: 1, find: () => simulate(bug) })),
    ...sampled(API_BUGS).map((bug) => ({ bug, atOnce: 1, find: () => model(bug) })),
    ...testHunts(TESTED_BUGS),
  ];
}

/** Every third, in a sample: all of them take five minutes, and each is as good as the next for telling that hunting works. */
function sampled(bugs: readonly Bug[]): readonly Bug[] {
  return values.sample ? bugs.filter((_, index) => index % 3 === 0) : bugs;
}

function testHunts(bugs: readonly TestedBug[]): Hunt[] {
  const wanted = values.sample ? bugs.filter(({ sample }) => sample) : bugs;
  return wanted.map((bug) => ({ bug, atOnce: TESTS_AT_ONCE, find: () => runTest(bug) }));
}

function engineHunts(): Hunt[] {
  const bugs = Object.entries(ENGINE_BUGS).flatMap(([engine, list]) =>
    list.map((bug) => ({ ...bug, name: `${engine}: ${bug.name}` })),
  );
  return testHunts(bugs);
}

/** Whether it was found. */
async function hunt({ bug, find }: Hunt): Promise<boolean> {
  const startedAt = performance.now();
  const found = await find();
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  console.log(`${found === undefined ? 'ESCAPED' : 'found  '} ${bug.name} (${seconds} s)`);
  if (found !== undefined) console.log(`          ${found}`);
  return found !== undefined;
}

const all = engines ? engineHunts() : coreHunts();
for (const { bug } of all) check(bug);
const wanted = all.filter(({ bug }) => bug.name.includes(word));
let found = 0;
for (const lanes of [1, TESTS_AT_ONCE]) {
  const waiting = wanted.filter(({ atOnce }) => atOnce === lanes);
  const lane = async (): Promise<void> => {
    for (let next = waiting.shift(); next; next = waiting.shift()) if (await hunt(next)) found += 1;
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}
uproot();
console.log(`mutation gate: ${found} of ${wanted.length} planted bugs found`);
process.exitCode = found === wanted.length && wanted.length > 0 ? 0 : 1;
