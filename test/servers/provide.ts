/**
 * Finds the program of a server: on PATH, in the folders where Debian hides servers, or in .cache/debian of this checkout
 * (git-ignored), where `npm run servers` unpacks Debian packages. Nothing is downloaded here: a test must not wait for a
 * mirror.
 */
import { accessSync, constants, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const TREES = fileURLToPath(new URL('../../.cache/debian', import.meta.url));

/** How to run a program: `command` with `args` before the program's own ones. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** What its files lie under (`<root>/usr/share/…`): `/`, or the tree it was unpacked into. */
  readonly root: string;
}

/** What is missing, and would be there if these packages were unpacked into that folder. */
export class NotProvided extends Error {
  readonly packages: readonly string[];
  readonly tree: string;

  constructor(what: string, packages: readonly string[], tree: string) {
    super(`${what} is neither on PATH nor unpacked in ${tree}. Run: npm run servers`);
    this.packages = packages;
    this.tree = tree;
  }
}

/**
 * `packages` are those that hold the program's own files. Name every one of them, also where one depends on the other:
 * Debian's redis-server is a link to a file of redis-tools, and what this system has installed is not unpacked again.
 *
 *     const program = provide('redis-server', ['redis-server', 'redis-tools']);
 */
export function provide(binary: string, packages: readonly string[], trees = TREES): Program {
  const installed = findIn(installedFolders(), binary);
  if (installed !== undefined) return { command: installed, args: [], env: {}, root: '/' };
  const tree = treeOf(packages, trees);
  const unpacked = findIn(foldersUnder(tree), binary);
  if (unpacked === undefined) throw new NotProvided(binary, packages, tree);
  return { ...runningIn(tree, unpacked), root: tree };
}

/** Where files of these packages are that are no programs. */
export function provideTree(packages: readonly string[], trees = TREES): string {
  const tree = treeOf(packages, trees);
  if (list(tree).length === 0) throw new NotProvided(packages.join(', '), packages, tree);
  return tree;
}

function treeOf(packages: readonly string[], trees: string): string {
  return join(trees, packages.join('+'));
}

function installedFolders(): string[] {
  const path = (process.env['PATH'] ?? '').split(':').filter((folder) => folder.startsWith('/'));
  return [...path, ...foldersUnder('/')];
}

function foldersUnder(root: string): string[] {
  const plain = ['usr/local/sbin', 'usr/local/bin', 'usr/sbin', 'usr/bin', 'sbin', 'bin'];
  const versioned = ['usr/lib/postgresql', 'usr/lib/jvm'].flatMap((folder) =>
    newestFirst(join(root, folder)).map((version) => join(folder, version, 'bin')),
  );
  return [...plain, ...versioned].map((folder) => join(root, folder));
}

function newestFirst(folder: string): string[] {
  return list(folder).sort((a, b) => b.localeCompare(a, 'en', { numeric: true }));
}

function findIn(folders: readonly string[], binary: string): string | undefined {
  return folders.map((folder) => join(folder, binary)).find(isExecutable);
}

/**
 * The system's loader finds the tree's libraries by LD_LIBRARY_PATH. If the packages need a newer C library than the
 * system's, it is in the tree too, and works only with the loader it came with.
 */
function runningIn(tree: string, program: string): Omit<Program, 'root'> {
  const libraries = ['usr/lib', 'lib'].flatMap((folder) => {
    const triplets = list(join(tree, folder)).filter((name) => name.includes('-linux-gnu'));
    return triplets.map((triplet) => join(tree, folder, triplet));
  });
  if (libraries.length === 0) return { command: program, args: [], env: {} };
  const loader = libraries.flatMap((folder) =>
    list(folder)
      .filter(isLoader)
      .map((name) => join(folder, name)),
  )[0];
  const path = libraries.join(':');
  if (loader === undefined) return { command: program, args: [], env: { LD_LIBRARY_PATH: path } };
  return { command: loader, args: ['--library-path', path, program], env: {} };
}

function isLoader(name: string): boolean {
  return /^ld-linux.*\.so\.\d+$/.test(name);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
