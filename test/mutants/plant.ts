/**
 * A bug is kept as edits to a copy of the sources. When the text that it replaces is no longer there, exactly once, the gate
 * fails: move the bug to where the code went.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

export interface Bug {
  readonly name: string;
  readonly edits: readonly Edit[];
}

interface Edit {
  /** Below src. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export const ROOT = resolve(import.meta.dirname, '../..');
const TREES = join(ROOT, '.mutants');
/** What tests and builds read; all else is theirs to share. */
const COPIED = [
  ...['src', 'test', 'examples', 'docs', 'README.md'],
  ...['package.json', 'tsconfig.json', 'tsconfig.build.json', 'vitest.config.ts'],
];
const SHARED = ['node_modules', '.cache'];

/** Before any of them is hunted: a bug whose place is gone is no longer planted. */
export function check({ name, edits }: Bug): void {
  for (const { file, find } of edits) {
    if (readFileSync(join(ROOT, 'src', file), 'utf8').split(find).length === 2) continue;
    throw new Error(`"${name}" no longer applies to ${file}: its text is not there exactly once.`);
  }
}

/** Answers with the copy that has the bug. */
export function plant({ name, edits }: Bug): string {
  const tree = join(TREES, name.replaceAll(/\W+/g, '-'));
  rmSync(tree, { recursive: true, force: true });
  mkdirSync(tree, { recursive: true });
  for (const part of COPIED) cpSync(join(ROOT, part), join(tree, part), { recursive: true });
  for (const part of SHARED) symlinkSync(join(ROOT, part), join(tree, part));
  for (const { file, find, replace } of edits) {
    const path = join(tree, 'src', file);
    const text = readFileSync(path, 'utf8');
    writeFileSync(
      path,
      text.replace(find, () => replace),
    );
  }
  return tree;
}

/** Types are not looked at: what a bug no longer uses is no error of its own. */
export function compile(tree: string, project: string, folder: string): void {
  const words = ['-p', project, '--noCheck', '--outDir', folder];
  execFileSync(join(ROOT, 'node_modules/.bin/tsc'), words, { cwd: tree, stdio: 'inherit' });
}

export function uproot(): void {
  rmSync(TREES, { recursive: true, force: true });
}
