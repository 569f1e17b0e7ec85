/** The SQLite engine against `proper-lockfile`, which makes a folder for each lock, and tries again after 10 ms. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Holdfast } from 'holdfast';
import { lock as lockFile } from 'proper-lockfile';
import { useOurs } from '../memory/suite.js';
import { type Contest, repeat, together } from '../measure.js';
import { LOCAL_WAITERS } from './suite.js';

const SEQUENCE = 50;
const PATIENTLY = { realpath: false, retries: { retries: 10_000, factor: 1, minTimeout: 10, maxTimeout: 10 } };

export const peer = 'proper-lockfile';

export async function* contests(): AsyncIterable<Contest> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'));
  const locks = new Holdfast(`sqlite:${join(folder, 'locks.db')}`);
  await locks.ready();
  const lock = locks.mutex('bench');
  const usePeer = async (): Promise<void> => (await lockFile(join(folder, 'bench'), PATIENTLY))();
  yield {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(lock)),
    peer: () => repeat(SEQUENCE, usePeer),
    goal: 1,
  };
  yield {
    name: `${LOCAL_WAITERS} local waiters on one lock`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => useOurs(lock)),
    peer: () => together(LOCAL_WAITERS, usePeer),
    goal: 1,
  };
  await locks.close();
  rmSync(folder, { recursive: true });
}
