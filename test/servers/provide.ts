/**
 * Finds the program of a server: on PATH, in the folders where Debian hides servers, or unpacked from Debian packages
 * into .cache/debian of this checkout (git-ignored; delete it to fetch anew).
 */
import { accessSync, constants, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unpackDebian } from './debian.js';

const TREES = fileURLToPath(new URL('../../.cache/debian', import.meta.url));

/** How to run a program: `command` with `args` before the program's own ones. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** What its files lie under (`<root>/usr/share/…`): `/`, or the tree it was unpacked into. */
  readonly root: string;
}

export interface ProvideOptions {
  /** Unpack it even if it is installed. Default: false. */
  readonly unpack?: boolean;
  /** Where trees are kept. Default: .cache/debian of the checkout. */
  readonly trees?: string;
}

/**
 * `packages` are those that hold the program's own files. Name every one of them, also where one depends on the other:
 * Debian's redis-server is a link to a file of redis-tools, and what this system has installed is not unpacked again.
 *
 *     const program = await provide('redis-server', ['redis-server', 'redis-tools']);
 */
export async function provide(
  binary: string,
  packages: readonly string[],
  options: ProvideOptions = {},
): Promise<Program> {
  const installed = options.unpack === true ? undefined : findIn(installedFolders(), binary);
  if (installed !== undefined) return { command: installed, args: [], env: {}, root: '/' };
  const tree = await provideTree(packages, options).catch((error: unknown) => {
    throw new Error(unavailable(binary, packages, error), { cause: error });
  });
  const unpacked = findIn(foldersUnder(tree), binary);
  if (unpacked === undefined) throw new Error(`${tree} holds no ${binary}: is it in another package?`);
  return { ...runningIn(tree, unpacked), root: tree };
}

/** What these packages hold, unpacked, and what they need that this system lacks. Answers with the folder. */
export async function provideTree(packages: readonly string[], options: ProvideOptions = {}): Promise<string> {
  const tree = join(options.trees ?? TREES, packages.join('+'));
  await unpackDebian(packages, tree);
  return tree;
}

function unavailable(binary: string, packages: readonly string[], error: unknown): string {
  const reason = error instanceof Error ? error.message.trim() : String(error);
  const install = `sudo apt-get update && sudo apt-get install --no-install-recommends ${packages.join(' ')}`;
  return `${binary} is not on PATH and could not be unpacked from Debian packages. Run:\n\n  ${install}\n\n${reason}`;
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
