/**
 * The file of the user's own. Nobody else may read who locks what, put another file in its place, or choose by a link where it is
 * made: with the environment of another user (`sudo -E`) that would be a file of root's at a place of that user's choice.
 */
import { lstatSync, mkdirSync, type Stats, statfsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { EXIT, Failure } from './failure.js';

const ROOT = 0;
const WRITABLE_BY_OTHERS = 0o022;
const OWN_HOME = 'use the environment of your own user (sudo -H)';

/**
 * The path of a file in a folder that nobody else can write. The folder is made if it is not there.
 * @param statfs for tests, which can't mount what they need.
 */
export function fileOfOurOwn(folder: string, name: string, statfs: Statfs = statfsSync): string {
  makeFolder(folder);
  const entry = look(folder);
  if (!entry?.isDirectory()) throw refused(`${folder} is no folder, or a link to one`, 'remove it');
  if (isForeign(entry)) throw refused(`the folder ${folder} belongs to another user (uid ${entry.uid})`, OWN_HOME);
  // Windows has no such modes: there a folder of one's own is private.
  if (process.getuid && entry.mode & WRITABLE_BY_OTHERS)
    throw refused(`the folder ${folder} can be written by others`, `run chmod go-w '${folder}'`);
  const network = networkBelow(folder, statfs);
  if (network !== undefined)
    throw refused(`the folder ${folder} is on a network file system (${network}), where files lock nothing`);
  const file = join(folder, name);
  if (look(file)?.isSymbolicLink()) throw refused(`the lock file ${file} is a link`, 'remove it');
  return file;
}

type Statfs = (path: string) => { readonly type: number };

/** As statfs(2) calls them. What is mounted by FUSE may be a local disk as well. */
const NETWORKS: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x5346414f, 'AFS'],
  [0x00c36400, 'Ceph'],
  [0x0bd00bd0, 'Lustre'],
]);

/** Each host would have its own idea of what the write-ahead log holds. */
function networkBelow(folder: string, statfs: Statfs): string | undefined {
  try {
    // Some platforms give the number with its sign.
    return NETWORKS.get(statfs(folder).type >>> 0);
  } catch {
    return undefined;
  }
}

function makeFolder(folder: string): void {
  if (look(folder)) return;
  const parent = nearestAbove(folder);
  // Root's folder there would lock the other one out of its own locks.
  if (parent && isForeign(parent) && parent.uid !== ROOT)
    throw refused(`the folder ${folder} would be inside of another user's (uid ${parent.uid})`, OWN_HOME);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw refused(`the folder ${folder} can't be made (${(error as { code?: string }).code})`);
  }
}

function nearestAbove(folder: string): Stats | undefined {
  for (let above = dirname(folder); above !== dirname(above); above = dirname(above)) {
    const entry = look(above);
    if (entry) return entry;
  }
  return undefined;
}

function isForeign({ uid }: Stats): boolean {
  return process.getuid !== undefined && uid !== process.getuid();
}

/** What is there itself, not what it may be a link to. */
function look(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

function refused(why: string, cure?: string): Failure {
  const cures = [...(cure ? [cure] : []), 'set HOLDFAST_URL'].join(', or ');
  return new Failure(EXIT.unreachable, 'HOLDFAST_ENGINE', `${why}: ${cures}`);
}
