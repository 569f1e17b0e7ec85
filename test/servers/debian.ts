/**
 * Unpacks Debian packages into a folder, as an ordinary user: nothing is installed, no package script runs, no service
 * starts. apt says which packages are missing on this system for the named ones to run, and only these are fetched, so a
 * tree is small: 7 MB for Redis, where everything it depends on would be 113 MB.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readlink, rename, rm, symlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { withFolderLock } from './folder-lock.js';

const run = promisify(execFile);

/** For all of a command: a mirror that does not answer must not eat the time of the whole test run. */
const COMMAND_TIMEOUT_MS = 120_000;

/** The folder is there afterwards, complete, whoever made it; it is never seen half full. */
export async function unpackDebian(packages: readonly string[], tree: string): Promise<void> {
  await mkdir(dirname(tree), { recursive: true });
  await withFolderLock(`${tree}.lock`, async () => {
    if (await exists(tree)) return;
    const work = await mkdtemp(`${tree}.new-`);
    try {
      await fetchAndUnpack(packages, work);
      await moveInto(tree, join(work, 'tree'));
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  });
}

async function fetchAndUnpack(packages: readonly string[], work: string): Promise<void> {
  const archives = join(work, 'archives');
  const unpacked = join(work, 'tree');
  await Promise.all([mkdir(archives), mkdir(unpacked)]);
  await download(packages, archives, []).catch(async () => {
    // Images for containers come without package lists, and old lists name files that the mirror has dropped. An
    // ordinary user may not refresh the system's lists, so these are our own, for this once.
    const lists = await ownLists(work);
    await download(packages, archives, lists);
  });
  const files = (await readdir(archives)).filter((name) => name.endsWith('.deb'));
  for (const file of files) await command('dpkg-deb', ['-x', join(archives, file), unpacked], work);
  await keepLinksInside(unpacked);
}

/** Links that begin at the root of the system, as those from a JRE to its settings do, are to begin at the root of the tree. */
async function keepLinksInside(tree: string): Promise<void> {
  const entries = await readdir(tree, { recursive: true, withFileTypes: true });
  for (const entry of entries.filter((each) => each.isSymbolicLink())) {
    const link = join(entry.parentPath, entry.name);
    const target = await readlink(link);
    if (!target.startsWith('/') || !existsSync(join(tree, target))) continue;
    await rm(link);
    await symlink(relative(dirname(link), join(tree, target)), link);
  }
}

async function download(packages: readonly string[], archives: string, options: readonly string[]): Promise<void> {
  // --reinstall lists the named packages even where they are installed; --print-uris does nothing else than print. It
  // leaves out what lies in apt's own archive folder, which says nothing about us, so the archive folder is ours.
  const plan = ['--print-uris', '--reinstall', '--no-install-recommends', '-qq', '-y'];
  const apart = ['-o', 'Debug::NoLocking=1', '-o', `Dir::Cache::archives=${archives}`];
  const printed = await command('apt-get', [...options, ...plan, ...apart, 'install', ...packages], archives);
  // 'http://…' name_5%3a7.0.15_amd64.deb 73392 SHA256:…
  const wanted = [...printed.matchAll(/^'\S+' ([^_\s]+)_([^_\s]+)_[^_\s]+\.deb /gm)].map(
    ([, name, version]) => `${name}=${decodeURIComponent(version ?? '')}`,
  );
  if (wanted.length === 0) throw new Error(`apt-get names nothing to download for ${packages.join(' ')}: ${printed}`);
  // As root apt would drop to a user who may not write here.
  const polite = ['-o', 'APT::Sandbox::User=root', '-o', 'Acquire::Retries=5', '-o', 'Acquire::http::Timeout=20'];
  await command('apt-get', [...options, ...polite, '-qq', 'download', ...wanted], archives);
}

async function ownLists(work: string): Promise<string[]> {
  const lists = join(work, 'lists');
  const cache = join(work, 'cache');
  await mkdir(join(lists, 'partial'), { recursive: true });
  await mkdir(join(cache, 'archives/partial'), { recursive: true });
  const options = ['-o', `Dir::State::lists=${lists}`, '-o', `Dir::Cache=${cache}`, '-o', 'Acquire::Languages=none'];
  const polite = ['-o', 'APT::Sandbox::User=root', '-o', 'Acquire::http::Timeout=20', '-o', 'Debug::NoLocking=1'];
  // It also fails when some other repository of this system does; whether the lists are enough, the download tells.
  await command('apt-get', [...options, ...polite, '-qq', 'update'], work).catch(() => undefined);
  return options;
}

async function command(file: string, args: readonly string[], cwd: string): Promise<string> {
  const env = { ...process.env, LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive' };
  const limits = { timeout: COMMAND_TIMEOUT_MS, maxBuffer: 16 * 1024 * 1024 };
  const { stdout } = await run(file, args, { cwd, env, ...limits }).catch((error: Error & { stderr?: string }) => {
    throw new Error(`${file}: ${error.stderr?.trim() || error.message}`, { cause: error });
  });
  return stdout;
}

async function moveInto(tree: string, unpacked: string): Promise<void> {
  try {
    await rename(unpacked, tree);
  } catch (error) {
    // Another process was here at the same time (see folder-lock.ts), and its tree is as good.
    if (!(await exists(tree))) throw error;
  }
}

async function exists(folder: string): Promise<boolean> {
  return (await readdir(folder).catch(() => [])).length > 0;
}
