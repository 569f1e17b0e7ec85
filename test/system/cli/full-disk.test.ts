/** The default file lies on the disk that the command fills: a backup, a dump. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { describe, expect } from 'vitest';
import { test as boxed } from './boxed.js';
import { until } from './sandbox.js';

const isRoot = process.platform === 'linux' && process.getuid?.() === 0;

/** A disk of half a megabyte. */
class SmallDisk implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), 'holdfast-small-'));
  readonly file = join(this.path, 'locks.db');
  readonly url = `sqlite:${this.file}`;
  readonly mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=600k', 'tmpfs', this.path]).status === 0;

  /** Also the space that the log has left in its last block. */
  fill(): void {
    const database = new DatabaseSync(this.file);
    database.exec('PRAGMA busy_timeout = 5000; PRAGMA wal_autocheckpoint = 0');
    try {
      for (const size of [65_536, 4_096]) whilePossible(() => this.#append(size));
      // Not until it is full: whoever makes room in the log makes it for us, too.
      for (let frame = 0; frame < 64; frame += 1) database.exec('UPDATE mint SET last_token = last_token');
    } catch {
      // Full.
    } finally {
      database.close();
    }
  }

  #append(size: number): void {
    writeFileSync(join(this.path, 'filler'), Buffer.alloc(size), { flag: 'a' });
  }

  [Symbol.dispose](): void {
    spawnSync('umount', ['--lazy', this.path]);
    rmSync(this.path, { recursive: true, force: true });
  }
}

function whilePossible(work: () => void): void {
  try {
    for (;;) work();
  } catch {
    // Full.
  }
}

const test = boxed.extend<{ disk: SmallDisk }>({
  // oxlint-disable-next-line no-empty-pattern -- Vitest reads from the pattern which fixtures this one needs.
  disk: async ({}, use) => {
    using disk = new SmallDisk();
    await use(disk);
  },
});

describe.runIf(isRoot).concurrent('a full disk', () => {
  test('is no reason to stop a command, and ls tells who holds', async ({ box, disk, skip }) => {
    if (!disk.mounted) skip('no small disk may be mounted here');
    const run = await box.hold('a', ['--url', disk.url, '--ttl', '3s']);
    disk.fill();
    const beats = beatsOf(disk.file);
    await until(() => beatsOf(disk.file) > beats + 3);
    expect(await box.run(['ls', '--url', disk.url])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('held'),
    });
    expect(await box.run(['inspect', 'a', '--url', disk.url])).toMatchObject({ code: 0 });
    run.child.kill('SIGTERM');
    expect(await run.ended).toMatchObject({ code: 143, stderr: '' });
  });

  test('that costs the lock is told as the cause', async ({ box, disk, skip }) => {
    if (!disk.mounted) skip('no small disk may be mounted here');
    const run = await box.hold('a', ['--url', disk.url, '--ttl', '3s', '--grace', '500ms']);
    // While somebody reads from the log, nothing in it may be overwritten.
    const reader = new DatabaseSync(disk.file);
    reader.exec('BEGIN');
    reader.prepare('SELECT count(*) FROM session').get();
    disk.fill();
    const { code, stderr } = await run.ended;
    reader.close();
    expect(code).toBe(76);
    expect(stderr).toMatch(/no space left/);
  });
});

describe.runIf(isRoot)('a disk that is read-only', () => {
  test('shows who holds, though nobody can take the dead out of their lines', async ({ box, disk, skip }) => {
    if (!disk.mounted) skip('no small disk may be mounted here');
    await box.hold('a', ['--url', disk.url, '--ttl', '10m']);
    const dead = await box.hold('b', ['--url', disk.url, '--ttl', '10m']);
    dead.child.kill('SIGKILL');
    await dead.ended;
    const view = mkdtempSync(join(tmpdir(), 'holdfast-view-'));
    spawnSync('mount', ['--bind', disk.path, view]);
    spawnSync('mount', ['-o', 'remount,bind,ro', view]);
    const { code, stdout, stderr } = await box.run(['ls', '--url', `sqlite:${join(view, 'locks.db')}`]);
    spawnSync('umount', ['--lazy', view]);
    rmSync(view, { recursive: true });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^a .*held/m);
  });
});

/** How often whoever holds has beaten. */
function beatsOf(file: string): number {
  const database = new DatabaseSync(file);
  try {
    return (database.prepare('SELECT total(beats) AS beats FROM session').get() as { beats: number }).beats;
  } finally {
    database.close();
  }
}
