import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';

/** The built package where no peer can be found: what a user has who has installed nothing else. */
const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
cpSync(join(import.meta.dirname, '../../../dist'), join(folder, 'dist'), { recursive: true });
writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
writeFileSync(
  join(folder, 'main.mjs'),
  `import { Holdfast } from './dist/index.js';
  const locks = new Holdfast('sqlite:locks.db', { ttl: '10s' });
  try {
    await locks.mutex('job').run((lease) => locks.register('job').set('done', lease));
    console.log((await locks.register('job').get()).value);
  } catch (error) {
    console.log(error.code, error.message);
  }
  await locks.close();`,
);
afterAll(() => rmSync(folder, { recursive: true }));

const builtIn = process.versions.sqlite;
const isSafeWithWal = builtIn !== undefined && builtIn.localeCompare('3.51.3', 'en', { numeric: true }) >= 0;

function run(): { stdout: string; stderr: string } {
  return spawnSync(process.execPath, ['main.mjs'], { cwd: folder, encoding: 'utf8' });
}

test.runIf(builtIn === undefined)('a Node without SQLite says which package to install', () => {
  expect(run().stdout).toContain('HOLDFAST_CONFIG');
  expect(run().stdout).toContain('npm install @photostructure/sqlite');
});

test.runIf(isSafeWithWal)('a Node with a new SQLite needs nothing else, and has a write-ahead log', () => {
  expect(run()).toMatchObject({ stdout: 'done\n', stderr: expect.not.stringContaining('HoldfastWarning') });
  expect(journalMode()).toBe('wal');
});

test.runIf(builtIn !== undefined && !isSafeWithWal)('a Node with an old SQLite warns, and does without the log', () => {
  expect(run()).toMatchObject({ stdout: 'done\n', stderr: expect.stringContaining('HoldfastWarning') });
  expect(journalMode()).toBe('delete');
});

function journalMode(): unknown {
  const { DatabaseSync } = createRequire(import.meta.url)('node:sqlite') as typeof import('@photostructure/sqlite');
  const database = new DatabaseSync(join(folder, 'locks.db'));
  const row = database.prepare('PRAGMA journal_mode').get() as { journal_mode: string };
  database.close();
  return row.journal_mode;
}
