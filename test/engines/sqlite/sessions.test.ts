/** Whose session counts as over. Rows are changed by hand to what a reboot, another host or another process would leave. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { track } from '../../../src/conformance/tracked.js';
import { eventually, waitFor } from '../../servers/wait.js';

const { DatabaseSync } = createRequire(import.meta.url)(
  '@photostructure/sqlite',
) as typeof import('@photostructure/sqlite');

let folder: string;
let opened: Holdfast[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  opened = [];
});

afterEach(async () => {
  await Promise.all(opened.map((locks) => locks.close()));
  rmSync(folder, { recursive: true, force: true });
});

/** In a session that does not beat while a test runs. */
function mutex(): ReturnType<Holdfast['mutex']> {
  const locks = new Holdfast(`sqlite:${join(folder, 'locks.db')}`, { ttl: '10m' });
  opened.push(locks);
  return locks.mutex('job');
}

/** The holder's session, and nobody else's yet. */
async function heldBySession(changes: Readonly<Record<string, string | number>>): Promise<void> {
  await mutex().acquire();
  change(changes);
}

function change(changes: Readonly<Record<string, string | number>>): void {
  const database = new DatabaseSync(join(folder, 'locks.db'));
  database.exec('PRAGMA busy_timeout = 10000');
  const columns = Object.keys(changes).map((name) => `${name} = ?`);
  // The first one's: others come after it.
  database
    .prepare(`UPDATE session SET ${columns.join(', ')} WHERE id = (SELECT session FROM claim ORDER BY token LIMIT 1)`)
    .run(...Object.values(changes));
  database.close();
}

describe('a session of another boot', () => {
  const other = { boot_id: 'another', ttl_ms: 1 };

  test('lives for as long as its counter moves, whatever our clock says of its time', async () => {
    await heldBySession({ ...other, expires_ms: 1 });
    const ours = mutex();
    for (let beats = 1; beats <= 5; beats += 1) {
      change({ beats });
      expect(await ours.tryAcquire()).toBeUndefined();
      // Longer than its ttl, of which we have seen nothing since its last beat.
      await sleep(5);
    }
  });

  test('is over when its counter has stood still for its ttl, however far its time is ahead of our clock', async () => {
    await heldBySession({ ...other, expires_ms: 1e15 });
    const ours = mutex();
    expect(await ours.tryAcquire()).toBeUndefined();
    await eventually('it is out of the way', async () => expect(await ours.tryAcquire()).toBeDefined());
  });
});

describe.skipIf(process.platform !== 'linux')('a session of this boot', () => {
  const { pid: ended } = spawnSync(process.execPath, ['--version']);

  test('is over at once when its process has ended', async () => {
    await heldBySession({ pid: ended });
    expect(await mutex().tryAcquire()).toBeDefined();
  });

  test('is over at once when its pid belongs to a younger process', async () => {
    await heldBySession({ start_time: '1' });
    expect(await mutex().tryAcquire()).toBeDefined();
  });

  test('of another pid namespace is judged by its time, and by no pid', async () => {
    await heldBySession({ pid: ended, pid_ns: 'pid:[1]' });
    expect(await mutex().tryAcquire()).toBeUndefined();
    change({ expires_ms: 1 });
    expect(await mutex().tryAcquire()).toBeDefined();
  });
});

test('a waiter is told of a release on another connection long before its next beat', async () => {
  const lease = await mutex().acquire();
  const waiter = mutex();
  const granted = track(waiter.acquire());
  await eventually('it waits', async () => expect((await waiter.inspect()).claims).toHaveLength(2));
  await lease.release();
  // It takes some milliseconds; a beat would come after minutes.
  expect(await waitFor(() => granted.state === 'fulfilled', 5_000)).toBe(true);
});

test('a beat forgets what once has noted, when its time is over', async () => {
  const path = join(folder, 'locks.db');
  const locks = new Holdfast(`sqlite:${path}`, { ttl: '5s' });
  opened.push(locks);
  for (const job of ['over', 'counts']) await locks.once(job, { atLeast: '1h' }, () => {});
  const database = new DatabaseSync(path);
  database.exec(`PRAGMA busy_timeout = 10000; UPDATE register SET kept_until = 1 WHERE name LIKE '%over'`);
  const names = (): unknown[] => database.prepare('SELECT name FROM register').all();
  await eventually('one is forgotten', async () => expect(names()).toEqual([{ name: 'once\u001Fcounts' }]));
  database.close();
});
