/** The command line's own file of locks: where it is made, for whom, and where it is refused. */
import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, lstatSync, mkdirSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Ended, Sandbox } from './sandbox.js';

let box: Sandbox;
let folder: string;

beforeEach(() => {
  box = new Sandbox();
  folder = box.path('holdfast');
});
afterEach(() => box[Symbol.asyncDispose]());

const run = (): Promise<Ended> => box.run(['run', 'job', '--', 'echo', 'ran']);

async function refused(why: RegExp): Promise<void> {
  const { code, stdout, stderr } = await run();
  expect({ code, stdout }).toEqual({ code: 69, stdout: '' });
  expect(stderr).toMatch(why);
  expect(stderr).toContain('HOLDFAST_URL');
}

test('folder and file are for their owner alone, whatever the umask', async () => {
  const { code } = await box.startCommand('sh', ['-c', `umask 0; exec "$0" "$@"`, process.execPath, ...args()]).ended;
  expect(code).toBe(0);
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  for (const file of readdirSync(folder)) expect(statSync(join(folder, file)).mode & 0o077, file).toBe(0);
});

function args(): string[] {
  return [new URL('../../../dist/cli/main.js', import.meta.url).pathname, 'run', 'job', '--', 'true'];
}

test('a folder that others can write is refused, with what to do', async () => {
  mkdirSync(folder);
  for (const mode of [0o770, 0o707, 0o1777]) {
    chmodSync(folder, mode);
    await refused(/can be written by others: run chmod go-w/);
  }
  chmodSync(folder, 0o755);
  expect(await run()).toMatchObject({ code: 0, stdout: 'ran\n' });
});

test('no link is followed: neither to a folder nor to a file, whether that is there or not', async () => {
  const elsewhere = box.path('elsewhere');
  symlinkSync(elsewhere, folder);
  await refused(/is no folder, or a link to one: remove it/);
  mkdirSync(elsewhere, { mode: 0o700 });
  await refused(/is no folder, or a link to one: remove it/);
  await box[Symbol.asyncDispose]();
  box = new Sandbox();
  folder = box.path('holdfast');
  mkdirSync(folder, { mode: 0o700 });
  symlinkSync(box.path('chosen'), join(folder, 'locks.db'));
  await refused(/locks\.db is a link: remove it/);
  expect(existsSync(box.path('chosen'))).toBe(false);
});

test('what is no folder is refused', async () => {
  box.write('holdfast', 'a file');
  await refused(/is no folder/);
});

test('with the environment of another user nothing is made or used', async ({ skip }) => {
  if (process.getuid?.() !== 0) skip('only root can give a folder to another user');
  // As `sudo -E` does it: the folder is not there yet, then it is.
  chownSync(box.folder, 65_534, 65_534);
  await refused(/would be inside of another user's \(uid 65534\): use the environment of your own user \(sudo -H\)/);
  expect(existsSync(folder)).toBe(false);
  mkdirSync(folder, { mode: 0o700 });
  chownSync(folder, 65_534, 65_534);
  await refused(/belongs to another user \(uid 65534\): use the environment/);
  expect(readdirSync(folder)).toEqual([]);
});

test('a file of the user’s choice may be a link, and is made for its owner alone', async () => {
  symlinkSync('second', box.path('first'));
  symlinkSync(box.path('locks.db'), box.path('second'));
  const url = `sqlite:${box.path('first')}`;
  const { code } = await box.startCommand('sh', ['-c', `umask 0; exec "$0" "$@"`, process.execPath, ...args()], {
    env: { HOLDFAST_URL: url },
  }).ended;
  expect(code).toBe(0);
  expect(statSync(box.path('locks.db')).mode & 0o777).toBe(0o600);
  expect(lstatSync(box.path('first')).isSymbolicLink()).toBe(true);
});

test('a link that leads to itself is an error, and not for ever', () => {
  symlinkSync('ring', box.path('ring'));
  const { status } = spawnSync(process.execPath, args(), {
    env: { ...process.env, HOLDFAST_URL: `sqlite:${box.path('ring')}` },
  });
  expect(status).toBe(69);
});
