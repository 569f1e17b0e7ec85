import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { Holdfast } from 'holdfast';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Worker } from './processes.js';

const { DatabaseSync } = createRequire(import.meta.url)(
  '@photostructure/sqlite',
) as typeof import('@photostructure/sqlite');
const isRoot = process.getuid?.() === 0;
/** Root may read everything, so another user must try; who must be able to run this very Node. */
const nobodyRunsNode = isRoot && spawnSync(process.execPath, ['--version'], { uid: 65_534, gid: 65_534 }).status === 0;

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  chmodSync(folder, 0o755);
  path = join(folder, 'locks.db');
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** What an acquire on this file says, with the causes that it carries. */
async function complaint(file = path): Promise<string> {
  const locks = new Holdfast(`sqlite:${file}`, { ttl: '10s' });
  try {
    await locks.mutex('job').acquire({ timeout: '10s' });
    return 'none';
  } catch (error) {
    return inspect(error);
  } finally {
    await locks.close();
  }
}

describe('a file that can’t be used says why, and stays as it is', () => {
  test('one that is no SQLite file', async () => {
    writeFileSync(path, 'Dear diary,\n'.repeat(1_000));
    const before = readFileSync(path);
    expect(await complaint()).toContain('is no SQLite file');
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  test('one that is damaged', async () => {
    const locks = new Holdfast(`sqlite:${path}`);
    await (await locks.mutex('job').acquire()).release();
    await locks.close();
    const emptyTheLog = new DatabaseSync(path);
    emptyTheLog.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    emptyTheLog.close();
    const bytes = readFileSync(path);
    bytes.fill(0xa5, 100, 4_096);
    writeFileSync(path, bytes);
    expect(await complaint()).toMatch(/is damaged|is no SQLite file/);
    expect(readFileSync(path).equals(bytes)).toBe(true);
  });

  test('one that belongs to another application', async () => {
    const other = new DatabaseSync(path);
    other.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (42)');
    other.close();
    const before = readFileSync(path);
    expect(await complaint()).toContain('database of something else');
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  test('one that another version has made', async () => {
    expect(await complaint()).toBe('none');
    const newer = new DatabaseSync(path);
    newer.exec('PRAGMA user_version = 99');
    newer.close();
    expect(await complaint()).toContain('another version of Holdfast');
  });

  test('one whose folder is not there, or is none', async () => {
    expect(await complaint(join(folder, 'missing', 'locks.db'))).toContain('can’t be opened'.replace('’', "'"));
    writeFileSync(join(folder, 'file'), '');
    expect(await complaint(join(folder, 'file', 'locks.db'))).toContain("can't be opened");
  });

  test.skipIf(!nobodyRunsNode)('one that may not be read, or not be written', async () => {
    expect(await complaint()).toBe('none');
    const nobody = new Worker({ uid: 65_534, gid: 65_534 });
    try {
      await nobody.ask('open', { url: `sqlite:${path}`, ttl: '10s' });
      await expect(nobody.ask('acquire', { name: 'job' })).rejects.toThrow(/can't be opened|read-only/);
      chmodSync(path, 0o644);
      await expect(nobody.ask('acquire', { name: 'job' })).rejects.toThrow(/can't be opened|read-only/);
    } finally {
      await nobody.end();
    }
    expect(await complaint()).toBe('none');
  });
});

test('a new file is for its owner alone, and so is what lies beside it', async () => {
  const locks = new Holdfast(`sqlite:${path}`);
  await locks.mutex('job').acquire();
  const files = readdirSync(folder);
  expect(files.length).toBeGreaterThan(1);
  for (const file of files) expect(statSync(join(folder, file)).mode & 0o077, file).toBe(0);
  await locks.close();
});

const small = join(tmpdir(), `holdfast-small-${process.pid}`);

function mountSmall(): boolean {
  mkdirSync(small, { recursive: true });
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=600k', 'tmpfs', small]).status === 0;
  if (!mounted) rmSync(small, { recursive: true });
  return mounted;
}

test('a full disk is told, costs nothing that is held, and is over when there is space again', async ({ skip }) => {
  if (!isRoot || !mountSmall()) skip('only root may mount a small disk');
  const locks = new Holdfast(`sqlite:${join(small, 'locks.db')}`, { ttl: '10s' });
  try {
    const lease = await locks.mutex('held').acquire();
    await locks.register('held').set('precious', lease);
    writeFileSync(join(small, 'filler'), '');
    fill(join(small, 'filler'));
    const held: unknown[] = [];
    const error = await fillUntilRefused(locks, held).catch((thrown: unknown) => thrown);
    expect(inspect(error)).toContain('no space left');
    expect(lease.held).toBe(true);
    rmSync(join(small, 'filler'));
    expect(await locks.register('held').get()).toMatchObject({ value: 'precious' });
    expect(await locks.mutex('after').tryAcquire()).toMatchObject({ held: true });
    expect(await lease.release()).toBe(true);
  } finally {
    await locks.close();
    // Lazily: this driver closes a file only when its statements have been collected.
    spawnSync('umount', ['--lazy', small]);
    rmSync(small, { recursive: true, force: true });
  }
});

function fill(file: string): void {
  for (const size of [65_536, 4_096]) {
    try {
      for (;;) writeFileSync(file, Buffer.alloc(size), { flag: 'a' });
    } catch {
      // Full.
    }
  }
}

/** New claims need new pages, sooner or later. */
async function fillUntilRefused(locks: Holdfast, held: unknown[]): Promise<void> {
  for (let i = 0; i < 2_000; i += 1) held.push(await locks.mutex(`filler:${i}`).acquire({ timeout: '3s' }));
}
