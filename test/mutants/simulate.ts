/** Bugs of the core, hunted by the simulation, and by the model of the public API. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { type Bug, compile, plant } from './plant.js';

const SEEDS = 500;
const COMPILED = 'simulation';
/** A bug that lets a program run for ever is found when this is over. */
const LIMIT_MS = 120_000;

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

/** Random programs that must be enough, after the fixed ones. */
const PROGRAMS = 400;

/** What the model said, or undefined if it noticed nothing. */
export function model(bug: Bug): string | undefined {
  const tree = plant(bug);
  compile(tree, 'test/model/tsconfig.json', COMPILED);
  const main = join(tree, COMPILED, 'test/model/main.js');
  const words = ['--seeds', `${PROGRAMS}`, '--failures', '1', '--no-shrink'];
  const run = spawnSync(process.execPath, [main, ...words], { encoding: 'utf8', timeout: LIMIT_MS });
  if (run.status === 0) return undefined;
  const [, fixed, rule] = /^Broken: (.*)\n {2}(\w[^:]*): /m.exec(run.stdout) ?? [];
  if (fixed !== undefined) return `${rule}: ${fixed}`;
  const [, seed, promise] = /Seed (\d+) broke a promise \((.*)\)/.exec(run.stdout) ?? [];
  return seed === undefined ? (run.stdout + run.stderr).trim().split('\n')[0] : `seed ${seed}: ${promise}`;
}
