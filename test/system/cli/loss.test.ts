/** The command is gone before the lock is. The tests wait for most of their time, so they wait beside each other. */
import { describe, expect } from 'vitest';
import { test } from './boxed.js';
import { type Sandbox, type Started, stillAlive, until } from './sandbox.js';
import { Surgery } from './surgery.js';

/** A command and a child of its own that both ignore SIGTERM: only SIGKILL to the whole group ends them. */
const stubborn = (box: Sandbox): string =>
  `trap '' TERM; sleep 1000 & echo $$ $! > ${box.path('pids')}; echo ready; wait; sleep 1000`;

/** A command that ends when it is told to. */
const obedient = `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done`;

/** Ends when the test has made a file. */
const patient = `echo ready; until [ -e "$XDG_STATE_HOME/go" ]; do sleep 0.02; done`;

async function hold(box: Sandbox, options: readonly string[], script: string): Promise<Started> {
  const holder = await box.hold('a', options, script);
  await until(() => holder.stdout() === 'ready\n');
  return holder;
}

/** Waits in line, and says as soon as it is granted who of the first is still there. */
async function waitBehind(box: Sandbox): Promise<Started> {
  const next = box.start(['run', 'a', '--', 'sh', '-c', `${stillAlive(box.path('pids'))}; echo granted`]);
  await box.waiters('a', 1);
  return next;
}

async function evict(box: Sandbox): Promise<void> {
  const { id } = (await box.claims('a'))[0]!;
  expect(await box.run(['evict', 'a', id, '--reason', 'stuck deploy'])).toMatchObject({ code: 0, stderr: '' });
}

describe.concurrent('the command', () => {
  test('that was evicted has its grace, and nobody else begins before it has ended', async ({ box }) => {
    const log = box.path('log');
    const bye = `trap 'sleep 1; echo first ends >> ${log}; exit 0' TERM; echo ready; while :; do sleep 0.02; done`;
    const holder = await hold(box, ['--ttl', '12s', '--grace', '6s'], bye);
    const next = box.start(['run', 'a', '--', 'sh', '-c', `echo second begins >> ${log}`]);
    await box.waiters('a', 1);
    await evict(box);
    const { code, stderr } = await holder.ended;
    expect(code).toBe(76);
    expect(stderr).toMatch(/^holdfast: the command was stopped: .*evicted \(stuck deploy\).*$/m);
    expect(await next.ended).toMatchObject({ code: 0 });
    expect(box.text('log')).toBe('first ends\nsecond begins\n');
  });

  test('that was evicted hears what is sent to holdfast in its grace', async ({ box }) => {
    const log = box.path('log');
    const note = (signal: string, then = ''): string => `trap 'echo ${signal} >> ${log}${then}' ${signal}`;
    const script = `${note('TERM')}; ${note('USR1')}; ${note('INT', '; exit 5')}; echo ready; while :; do sleep 0.02; done`;
    const holder = await hold(box, ['--ttl', '12s', '--grace', '6s'], script);
    const next = box.start(['run', 'a', '--', 'sh', '-c', `echo second >> ${log}`]);
    await box.waiters('a', 1);
    await evict(box);
    await until(() => box.text('log') === 'TERM\n');
    holder.child.kill('SIGUSR1');
    await until(() => box.text('log') === 'TERM\nUSR1\n');
    holder.child.kill('SIGINT');
    expect(await holder.ended).toMatchObject({ code: 76 });
    expect(await next.ended).toMatchObject({ code: 0 });
    expect(box.text('log')).toBe('TERM\nUSR1\nINT\nsecond\n');
  });

  test('that was evicted and does not end is killed with its whole group before the next one begins', async ({
    box,
  }) => {
    const holder = await hold(box, ['--ttl', '12s', '--grace', '1s'], stubborn(box));
    const next = await waitBehind(box);
    await evict(box);
    expect(await holder.ended).toMatchObject({ code: 76 });
    expect(await next.ended).toEqual({ code: 0, stdout: 'granted\n', stderr: '' });
  });

  test('whose beats fail is killed with its whole group before the next one begins', async ({ box }) => {
    const holder = await hold(box, ['--ttl', '6s'], stubborn(box));
    // It stands in line before the first can lose anything, however long its start takes.
    const next = await waitBehind(box);
    using surgery = new Surgery(box);
    surgery.deafen();
    const { code, stderr } = await holder.ended;
    expect(code).toBe(76);
    expect(stderr).toMatch(/^holdfast: the command was stopped: "a" was about to be lost.*\n$/);
    expect(await next.ended).toEqual({ code: 0, stdout: 'granted\n', stderr: '' });
  });

  test('whose session the engine has forgotten is killed at once', async ({ box }) => {
    const holder = await hold(box, ['--ttl', '6s'], stubborn(box));
    using surgery = new Surgery(box);
    surgery.run('DELETE FROM claim; DELETE FROM line; DELETE FROM session');
    expect(await holder.ended).toMatchObject({ code: 76 });
    const look = await box.startCommand('sh', ['-c', stillAlive(box.path('pids'))]).ended;
    expect(look.stdout).toBe('');
  });

  test('that ended by itself after its lock was lost was not all done under the lock: 76', async ({ box }) => {
    // No beat before the end finds out.
    const holder = await hold(box, ['--ttl', '10m'], patient);
    using surgery = new Surgery(box);
    surgery.run('DELETE FROM claim');
    box.write('go');
    const { code, stderr } = await holder.ended;
    expect(code).toBe(76);
    expect(stderr).toMatch(/^holdfast: "a" was lost before the command ended: .*\n$/);
  });

  test('whose engine hangs gets SIGTERM, and ends in good order', async ({ box }) => {
    const holder = await hold(box, ['--ttl', '8s', '--grace', '4s'], obedient);
    using surgery = new Surgery(box);
    surgery.run('BEGIN IMMEDIATE');
    expect(await holder.ended).toMatchObject({ code: 76, stdout: 'ready\nbye\n' });
    surgery.run('ROLLBACK');
  });

  test('goes on through an outage that is shorter than its ttl', async ({ box }) => {
    const holder = await hold(box, ['--ttl', '9s'], patient);
    using surgery = new Surgery(box);
    surgery.deafen();
    const { beats, expires_ms, ttl_ms } = surgery.holder();
    // A third of the ttl after the last one the next beat was sent, and failed.
    await until(() => monotonicMs() > expires_ms - ttl_ms + ttl_ms / 3 + 100);
    expect(surgery.holder().beats).toBe(beats);
    surgery.run('DROP TRIGGER deaf');
    await until(() => surgery.holder().beats > beats);
    box.write('go');
    expect(await holder.ended).toEqual({ code: 0, stdout: 'ready\n', stderr: '' });
  });
});

/** As the engine has it. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}
