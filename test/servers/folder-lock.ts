/**
 * One process at a time, over a folder that exists while the lock is held. Test files run in processes of their own, and
 * two of them that want the same packages should not download them twice.
 *
 * The holder touches the folder while it works; one that has not been touched for a while belongs to a process that died.
 * This can let two in (a laptop that slept, two waiters that break the same stale lock at once), so the work inside has
 * to end in one atomic step. It saves time; it is not what keeps the result whole.
 */
import { mkdir, rm, stat, utimes } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

const TOUCH_EVERY_MS = 500;
/** Many missed touches: a machine busy with unpacking may be late with a few. */
const STALE_AFTER_MS = 10_000;

export async function withFolderLock<T>(folder: string, work: () => Promise<T>): Promise<T> {
  while (!(await tryCreate(folder))) {
    if (await isStale(folder)) await rm(folder, { recursive: true, force: true });
    else await sleep(100);
  }
  const touching = setInterval(() => void touch(folder), TOUCH_EVERY_MS);
  try {
    return await work();
  } finally {
    clearInterval(touching);
    await rm(folder, { recursive: true, force: true });
  }
}

async function tryCreate(folder: string): Promise<boolean> {
  try {
    await mkdir(folder);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function isStale(folder: string): Promise<boolean> {
  const found = await stat(folder).catch(() => undefined);
  return found !== undefined && Date.now() - found.mtimeMs > STALE_AFTER_MS;
}

/** Fails when somebody took the lock for stale and removed it: see above, the work is safe without it. */
async function touch(folder: string): Promise<void> {
  const now = new Date();
  await utimes(folder, now, now).catch(() => undefined);
}
