/**
 * What a power cut leaves behind: sessions of a boot that is over, whose times mean nothing any more. Nobody reboots here: the
 * holder is killed, and the id of its boot changed in the file.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from '@photostructure/sqlite';
import { Holdfast } from 'holdfast';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Sandbox } from '../../system/cli/sandbox.js';
import { Worker } from './processes.js';

const TTL_MS = 1_000;

let folder: string;
let file: string;
let workers: Worker[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  file = join(folder, 'locks.db');
  workers = [];
});

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.end()));
  rmSync(folder, { recursive: true, force: true });
});

function sql(text: string, at = file): Record<string, unknown>[] {
  const database = new DatabaseSync(at);
  database.exec('PRAGMA busy_timeout = 10000');
  const rows = database.prepare(text).all() as Record<string, unknown>[];
  database.close();
  return rows;
}

async function killedHolder(ttl = `${TTL_MS}ms`): Promise<void> {
  const holder = new Worker();
  workers.push(holder);
  await holder.ask('open', { url: `sqlite:${file}`, ttl, label: 'holder' });
  await holder.ask('acquire', { name: 'job' });
  await holder.end();
}

/** A whole life in one try: it opens the file, is refused or not, and leaves. */
async function tryOnce(): Promise<boolean> {
  await using locks = new Holdfast(`sqlite:${file}`, { ttl: '10s' });
  return (await locks.mutex('job').tryAcquire()) !== undefined;
}

test('the command of a cron job runs again after a power cut, though each try ends at once', async () => {
  await using box = new Sandbox();
  const holder = await box.hold('backup', ['--ttl', `${TTL_MS}ms`]);
  holder.child.kill('SIGKILL');
  await holder.ended;
  sql(`UPDATE session SET boot_id = 'before the power cut'`, box.file);
  const started = Date.now();
  let tries = 0;
  for (;;) {
    tries += 1;
    // The line of `holdfast run --help`.
    const { code, stdout } = await box.run(['run', 'backup', '-n', '--busy-exit', '0', '--', 'echo', 'backed up']);
    expect(code).toBe(0);
    if (stdout === 'backed up\n') break;
    expect(Date.now() - started, 'it never runs').toBeLessThan(40 * TTL_MS);
  }
  expect(tries).toBeGreaterThan(1);
});

test('tries of short lives see together that a session is over: after its ttl, and not before', async () => {
  await killedHolder('3s');
  sql(`UPDATE session SET boot_id = 'another', expires_ms = 1e15`);
  const started = performance.now();
  while (!(await tryOnce())) await sleep(50);
  expect(performance.now() - started).toBeGreaterThanOrEqual(3_000);
  expect(performance.now() - started).toBeLessThan(30_000);
  // What was seen goes with the session.
  expect(sql('SELECT * FROM watch')).toEqual([]);
});

test('a session of another boot that beats is never judged dead, however long it was watched before', async () => {
  await killedHolder('10m');
  sql(`UPDATE session SET boot_id = 'another', expires_ms = 1`);
  for (let beat = 0; beat < 10; beat += 1) {
    expect(await tryOnce()).toBe(false);
    sql(`UPDATE session SET beats = beats + 1 WHERE boot_id = 'another'`);
    sql('UPDATE watch SET since_ms = since_ms - 3600000');
    expect(await tryOnce()).toBe(false);
  }
});

/** A process whose kernel says that this is another boot, as that of another host does. */
const FOREIGN = 'mount --bind "$FOREIGN_BOOT" /proc/sys/kernel/random/boot_id && exec "$0" "$@"';
const mayMount = spawnSync('unshare', ['--mount', 'true']).status === 0;

test('a living process of another boot keeps its lock for longer than its ttl, and loses it when it dies', async ({
  skip,
}) => {
  if (!mayMount) skip('nobody may mount another boot id here');
  const boot = join(folder, 'boot_id');
  writeFileSync(boot, 'of another host\n');
  const holder = new Worker({
    execPath: 'unshare',
    execArgv: ['--mount', 'sh', '-c', FOREIGN, process.execPath],
    env: { ...process.env, FOREIGN_BOOT: boot },
  });
  workers.push(holder);
  await holder.ask('open', { url: `sqlite:${file}`, ttl: '2s', label: 'foreign' });
  await holder.ask('acquire', { name: 'job' });
  expect(sql('SELECT boot_id FROM session')).toEqual([{ boot_id: 'of another host' }]);
  for (const until = Date.now() + 5_000; Date.now() < until; await sleep(100)) expect(await tryOnce()).toBe(false);
  expect(await holder.ask('look')).toMatchObject({ held: true });
  await holder.end();
  const died = Date.now();
  while (!(await tryOnce())) expect(Date.now() - died).toBeLessThan(40_000);
});

test('watchers of different boots do not disturb each other, nor does a watcher’s own reboot end a watch early', async () => {
  await killedHolder();
  sql(`UPDATE session SET boot_id = 'another'`);
  // One of another host, or of a boot of ours that is over, has watched for ages by its own clock; that says nothing to us.
  sql(`INSERT INTO watch SELECT id, 'a third', beats, -1e12 FROM session WHERE boot_id = 'another'`);
  expect(await tryOnce()).toBe(false);
  expect(await tryOnce()).toBe(false);
  const ours = `SELECT since_ms FROM watch WHERE boot_id <> 'a third'`;
  const [watch] = sql(ours);
  // The third one looks again and again; ours goes on.
  sql(`UPDATE watch SET since_ms = since_ms + 1 WHERE boot_id = 'a third'`);
  expect(await tryOnce()).toBe(false);
  expect(sql(ours)).toEqual([watch]);
  const started = Date.now();
  while (!(await tryOnce())) expect(Date.now() - started).toBeLessThan(30 * TTL_MS);
});

test('a time that lies in the future of our clock is of no use, and the watch begins anew', async () => {
  await killedHolder();
  sql(`UPDATE session SET boot_id = 'another'`);
  expect(await tryOnce()).toBe(false);
  sql('UPDATE watch SET since_ms = 1e15');
  const started = Date.now();
  while (!(await tryOnce())) expect(Date.now() - started).toBeLessThan(30 * TTL_MS);
});

test('a session with our boot’s name and the times of another clock is watched as well', async () => {
  await killedHolder();
  // Its process can't be looked for, and its time never comes.
  sql(`UPDATE session SET expires_ms = 1e15, pid_ns = 'pid:[1]'`);
  const started = Date.now();
  while (!(await tryOnce())) expect(Date.now() - started).toBeLessThan(30 * TTL_MS);
});

test('a file of an earlier version is refused with what to do', async () => {
  expect(await tryOnce()).toBe(true);
  sql('DROP TABLE watch');
  sql('ALTER TABLE claim DROP COLUMN capacity');
  sql('PRAGMA user_version = 1');
  await expect(tryOnce()).rejects.toMatchObject({
    code: 'HOLDFAST_CONFIG',
    message: expect.stringMatching(/another version of Holdfast \(schema 1, not 2\).*delete/),
  });
});
