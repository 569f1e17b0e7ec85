/** The command is gone before the lock is. */
import { DatabaseSync } from '@photostructure/sqlite';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Sandbox, type Started, stillAlive, until } from './sandbox.js';

let box: Sandbox;

beforeEach(() => {
  box = new Sandbox();
});

afterEach(() => box[Symbol.asyncDispose]());

/** A command and a child of its own that both ignore SIGTERM: only SIGKILL to the whole group ends them. */
const stubborn = (): string =>
  `trap '' TERM; sleep 1000 & echo $$ $! > ${box.path('pids')}; echo ready; wait; sleep 1000`;

async function holdStubbornly(...options: string[]): Promise<Started> {
  const holder = await box.hold('a', options, stubborn());
  await until(() => holder.stdout() === 'ready\n');
  return holder;
}

/** Waits in line, and says as soon as it is granted who of the first is still there. */
async function waitBehind(): Promise<Started> {
  const next = box.start(['run', 'a', '--', 'sh', '-c', `${stillAlive(box.path('pids'))}; echo granted`]);
  await box.waiters('a', 1);
  return next;
}

async function evict(): Promise<void> {
  const { id } = (await box.claims('a'))[0]!;
  expect(await box.run(['evict', 'a', id, '--reason', 'stuck deploy'])).toMatchObject({ code: 0, stderr: '' });
}

test('an evicted command has its grace, and nobody else begins before it has ended', async () => {
  const log = box.path('log');
  const bye = `trap 'sleep 0.2; echo first ends >> ${log}; exit 0' TERM; echo ready; while :; do sleep 0.02; done`;
  const holder = await box.hold('a', ['--ttl', '12s', '--grace', '6s'], bye);
  await until(() => holder.stdout() === 'ready\n');
  const next = box.start(['run', 'a', '--', 'sh', '-c', `echo second begins >> ${log}`]);
  await box.waiters('a', 1);
  await evict();
  const { code, stderr } = await holder.ended;
  expect(code).toBe(76);
  expect(stderr).toMatch(/^holdfast: the command was stopped: .*evicted \(stuck deploy\).*$/m);
  expect(await next.ended).toMatchObject({ code: 0 });
  expect(box.text('log')).toBe('first ends\nsecond begins\n');
});

test('an evicted command that does not end is killed with its whole group before the next one begins', async () => {
  const holder = await holdStubbornly('--ttl', '12s', '--grace', '1s');
  const next = await waitBehind();
  await evict();
  expect(await holder.ended).toMatchObject({ code: 76 });
  expect(await next.ended).toEqual({ code: 0, stdout: 'granted\n', stderr: '' });
});

test('a command whose beats fail is killed with its whole group before the next one begins', async () => {
  const holder = await holdStubbornly('--ttl', '6s');
  // It stands in line before the first can lose anything, however long its start takes.
  const next = await waitBehind();
  const database = new DatabaseSync(box.file);
  // Only the first run's beats fail: the one that waits is served by the engine as ever.
  database.exec('PRAGMA busy_timeout = 5000');
  const session = database.prepare('SELECT session FROM claim WHERE held = 1').get() as { session: string };
  database.exec(
    `CREATE TRIGGER deaf BEFORE UPDATE ON session WHEN old.id = '${session.session}' BEGIN SELECT RAISE(ABORT, 'deaf'); END`,
  );
  const { code, stderr } = await holder.ended;
  expect(code).toBe(76);
  expect(stderr).toMatch(/^holdfast: the command was stopped: "a" was about to be lost.*\n$/);
  expect(await next.ended).toEqual({ code: 0, stdout: 'granted\n', stderr: '' });
  database.close();
});

test('a command whose session the engine has forgotten is killed at once', async () => {
  const holder = await holdStubbornly('--ttl', '6s');
  const database = new DatabaseSync(box.file);
  database.exec('PRAGMA busy_timeout = 5000; DELETE FROM claim; DELETE FROM line; DELETE FROM session');
  database.close();
  expect(await holder.ended).toMatchObject({ code: 76 });
  const look = await box.startCommand('sh', ['-c', stillAlive(box.path('pids'))]).ended;
  expect(look.stdout).toBe('');
});

test('a command whose engine hangs gets SIGTERM, and ends in good order', async () => {
  const bye = `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done`;
  const holder = await box.hold('a', ['--ttl', '8s', '--grace', '4s'], bye);
  await until(() => holder.stdout() === 'ready\n');
  const database = new DatabaseSync(box.file);
  database.exec('PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE');
  expect(await holder.ended).toMatchObject({ code: 76, stdout: 'ready\nbye\n' });
  database.exec('ROLLBACK');
  database.close();
});

test('a short outage costs nothing', async () => {
  const go = `until [ -e ${box.path('go')} ]; do sleep 0.02; done`;
  const holder = await box.hold('a', ['--ttl', '6s'], go);
  const database = new DatabaseSync(box.file);
  database.exec('PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE');
  await new Promise((resolve) => setTimeout(resolve, 500));
  database.exec('ROLLBACK');
  database.close();
  await box.startCommand('touch', [box.path('go')]).ended;
  expect(await holder.ended).toEqual({ code: 0, stdout: '', stderr: '' });
});
