/** The linter's rules are part of the design (no clock in the core, no forgotten await), so they have tests too. */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const WRONG: Readonly<Record<string, { text: string; rule: string }>> = {
  'src/core/floating.ts': {
    text: 'const work = async (): Promise<void> => {};\n\nexport function start(): void {\n  work();\n}\n',
    rule: 'typescript(no-floating-promises)',
  },
  'src/core/misused.ts': {
    text: 'export const run = (work: () => Promise<void>): void => [1].forEach(work);\n',
    rule: 'typescript(no-misused-promises)',
  },
  'src/core/timer.ts': {
    text: 'export const later = (run: () => void): unknown => setTimeout(run, 5);\n',
    rule: 'eslint(no-restricted-globals)',
  },
  'src/core/any.ts': {
    text: 'export const read = (value: any): string => `${value}`;\n',
    rule: 'typescript(no-explicit-any)',
  },
};

const CLEAN: Readonly<Record<string, string>> = {
  'src/core/awaited.ts':
    'const work = async (): Promise<void> => {};\n\nexport async function start(): Promise<void> {\n  await work();\n}\n',
};

let tree: string;
/** Which rules were reported for which file. */
const reported = new Map<string, string[]>();

beforeAll(async () => {
  const cache = join(ROOT, '.cache');
  await mkdir(cache, { recursive: true });
  tree = await mkdtemp(join(cache, 'lint-'));
  for (const file of ['.oxlintrc.json', 'tsconfig.json']) await cp(join(ROOT, file), join(tree, file));
  const wrong = Object.entries(WRONG).map(([path, { text }]) => [path, text] as const);
  const files = new Map([...wrong, ...Object.entries(CLEAN)]);
  for (const [path, text] of files) {
    await mkdir(dirname(join(tree, path)), { recursive: true });
    await writeFile(join(tree, path), text);
  }
  for (const { filename, code } of await lint([...files.keys()])) {
    reported.set(filename, [...(reported.get(filename) ?? []), code]);
  }
  // It loads all types first.
}, 180_000);

afterAll(() => rm(tree, { recursive: true, force: true }));

/** Named one by one, because the tree is git-ignored, and the linter passes over what is. */
function lint(files: readonly string[]): Promise<{ filename: string; code: string }[]> {
  const oxlint = join(ROOT, 'node_modules/.bin/oxlint');
  return new Promise((resolve, reject) => {
    execFile(oxlint, ['--type-aware', '--format', 'json', ...files], { cwd: tree }, (error, stdout, stderr) => {
      try {
        resolve((JSON.parse(stdout) as { diagnostics: { filename: string; code: string }[] }).diagnostics);
      } catch {
        reject(new Error(`The linter did not run: ${stderr || stdout}`, { cause: error }));
      }
    });
  });
}

describe('the linter', () => {
  test.each(Object.entries(WRONG).map(([path, { rule }]) => [path, rule]))('reports %s by %s', (path, rule) => {
    expect(reported.get(path)).toEqual([rule]);
  });

  test.each(Object.keys(CLEAN))('has nothing to say about %s', (path) => {
    expect(reported.get(path)).toBeUndefined();
  });
});
