/**
 * `npm run test:matrix`: what the ordinary run does on one version of Node, on the others. Each comes from the registry
 * as the package `node`, into the cache of npm; nothing is installed. `npm run test:matrix -- 24` for one of them.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** The newest of each line, and one whose SQLite is too old for a write-ahead log. */
const OLD_SQLITE = '22.13.0';
const VERSIONS = ['22', '24', '26', OLD_SQLITE];
const SUITES = ['test/conformance', 'test/sqlite', 'test/cli', 'test/unit/process.test.ts'];

const vitest = join(import.meta.dirname, '../node_modules/vitest/vitest.mjs');
const wanted = process.argv.slice(2);
const failed: string[] = [];
for (const version of wanted.length > 0 ? wanted : VERSIONS) {
  console.log(`\nNode ${version}`);
  const node = ['exec', '--yes', `--package=node@${version}`, '--', 'node'];
  spawnSync('npm', [...node, '--version'], { stdio: 'inherit' });
  const run = spawnSync(
    'npm',
    [...node, vitest, 'run', ...(version === OLD_SQLITE ? ['test/sqlite/driver.test.ts'] : SUITES)],
    { stdio: 'inherit' },
  );
  if (run.status !== 0) failed.push(version);
}
console.log(failed.length === 0 ? '\nmatrix: all passed' : `\nmatrix: failed on Node ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;
