/** Bugs of the core, hunted by the simulation. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { type Bug, compile, plant } from './plant.js';

const SEEDS = 500;
const COMPILED = 'simulation';

/** What the simulation said, or undefined if it noticed nothing. */
export function simulate(bug: Bug): string | undefined {
  const tree = plant(bug);
  compile(tree, 'test/simulation/tsconfig.json', COMPILED);
  const main = join(tree, COMPILED, 'test/simulation/main.js');
  const run = spawnSync(process.execPath, [main, '--seeds', `${SEEDS}`, '--stop-at-first'], { encoding: 'utf8' });
  if (run.status === 0) return undefined;
  const [, seed, first] = /Seed (\d+) broke a promise:\n {2}at [\d.]+ ms: (.*)/.exec(run.stdout) ?? [];
  return seed === undefined ? (run.stdout + run.stderr).trim().split('\n')[0] : `seed ${seed}: ${first}`;
}
