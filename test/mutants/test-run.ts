/** Bugs of engines, fences and the command line, hunted by the one test that is there to find them. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Bug, compile, plant, ROOT } from './plant.js';

export interface TestedBug extends Bug {
  /** Must go red: a file of tests, and words of the name of one test in it. */
  readonly foundBy: { readonly file: string; readonly test: string };
  /** Hunted in `npm run test:deep` too: one that is found within seconds. Default: false. */
  readonly sample?: boolean;
}

interface Report {
  readonly testResults: readonly {
    readonly message: string;
    readonly assertionResults: readonly {
      readonly status: string;
      readonly fullName: string;
      readonly failureMessages: readonly string[];
    }[];
  }[];
}

/** A bug that lets a test hang is found when this is over. */
const LIMIT_MS = 60_000;

/** What the test said, or undefined if it noticed nothing. A test that did not run is an error. */
export async function runTest(bug: TestedBug): Promise<string | undefined> {
  const tree = plant(bug);
  compile(tree, 'tsconfig.build.json', 'dist');
  const { file, test } = bug.foundBy;
  const output = join(tree, 'found.json');
  const words = ['run', file, '-t', test.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')];
  const options = ['--reporter=json', `--outputFile.json=${output}`, `--testTimeout=${LIMIT_MS}`];
  const printed = await vitest(tree, [...words, ...options]);
  const results = reported(output)?.testResults.flatMap(({ assertionResults }) => assertionResults) ?? [];
  const ran = results.filter(({ status, fullName }) => status !== 'skipped' && fullName.includes(test));
  if (ran.length === 0) throw new Error(`"${bug.name}": no test of ${file} ran that is called "${test}".\n${printed}`);
  return ran.find(({ status }) => status === 'failed')?.failureMessages[0]?.split('\n')[0];
}

function vitest(cwd: string, words: readonly string[]): Promise<string> {
  const main = join(ROOT, 'node_modules/vitest/vitest.mjs');
  return new Promise((resolve) => {
    execFile(process.execPath, [main, ...words], { cwd, maxBuffer: 64 * 1024 * 1024 }, (_error, stdout, stderr) =>
      resolve(stdout + stderr),
    );
  });
}

function reported(file: string): Report | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Report;
  } catch {
    return undefined;
  }
}
