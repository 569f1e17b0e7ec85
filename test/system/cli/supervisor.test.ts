/** Nobody of the command's family works without the lock, however it is ended. What each writes tells who was at work. */
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect } from 'vitest';
import { test } from './boxed.js';
import { type Sandbox, type Started, until } from './sandbox.js';

/** Writes a line every few milliseconds, for as long as it lives. It ignores what a polite end would be. */
const working = (box: Sandbox): string => {
  box.write('work.sh', `trap '' TERM HUP INT; while :; do echo first >> ${box.path('log')}; sleep 0.02; done`);
  return `sh ${box.path('work.sh')}`;
};

/** Ways in which work comes into a process group, or under a parent, of its own. */
const WAYS: readonly (readonly [string, (box: Sandbox) => string])[] = [
  ['in its own process', (box) => `exec ${working(box)}`],
  ['in a child', (box) => `${working(box)}; echo after`],
  ['under timeout(1), which makes a group', (box) => `timeout 1000 ${working(box)}; echo after`],
  ['as a job of a shell with job control', (box) => `set -m; ${working(box)} & wait`],
  ['in an orphan in the background', (box) => `(${working(box)} &); while :; do sleep 0.05; done`],
];

async function atWork(box: Sandbox, script: string, options: readonly string[]): Promise<Started> {
  const holder = await box.hold('a', options, script);
  await until(() => box.text('log').includes('first'));
  return holder;
}

/** Waits in line; once granted it writes, too, and so long that nobody of the first could be overlooked. */
async function waitBehind(box: Sandbox): Promise<Started> {
  const script = `for i in 1 2 3 4 5 6 7 8 9 10; do echo second >> ${box.path('log')}; sleep 0.05; done`;
  const next = box.start(['run', 'a', '--', 'sh', '-c', script]);
  await box.waiters('a', 1);
  return next;
}

function expectOneAfterTheOther(box: Sandbox): void {
  const lines = box.text('log').trimEnd().split('\n');
  expect(lines.slice(lines.indexOf('second')).filter((line) => line !== 'second')).toEqual([]);
  expect(lines).toContain('second');
}

/** T: stopped. D: in the kernel, and stopped before it comes back. Undefined: it has ended. */
function stateOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const state = stat.slice(stat.lastIndexOf(')') + 2)[0];
    return state === 'Z' ? undefined : state;
  } catch {
    return undefined;
  }
}

/**
 * Whether a stop has reached both. A shell that has just forked shares its memory with the child until that has started another
 * program: while the child is stopped the shell waits for it inside the kernel, and is shown as D for as long as that lasts.
 */
function haveStopped({ child, pid }: { readonly child: ChildProcess; readonly pid: number }): boolean {
  return stateOf(child.pid!) === 'T' && ['T', 'D'].includes(stateOf(pid)!);
}

describe.concurrent.each(WAYS)('work that is done %s', (_, script) => {
  test('ends with an eviction, before the next one begins', async ({ box }) => {
    const holder = await atWork(box, script(box), ['--ttl', '12s', '--grace', '500ms']);
    const next = await waitBehind(box);
    const { id } = (await box.claims('a'))[0]!;
    await box.run(['evict', 'a', id]);
    expect(await holder.ended).toMatchObject({ code: 76 });
    expect(await next.ended).toMatchObject({ code: 0 });
    expectOneAfterTheOther(box);
  });

  test('ends with a signal, before the next one begins', async ({ box }) => {
    const holder = await atWork(box, script(box), ['--ttl', '12s', '--grace', '500ms']);
    const next = await waitBehind(box);
    holder.child.kill('SIGTERM');
    // The one that is the work itself ignores it, and goes on with the lock.
    if (script(box).startsWith('exec')) process.kill(-Number(box.text('started-0')), 'SIGKILL');
    await holder.ended;
    expect(await next.ended).toMatchObject({ code: 0 });
    expectOneAfterTheOther(box);
  });
});

test.concurrent('what a command leaves in the background keeps the lock with --wait-all only', async ({ box }) => {
  const leave = `(until [ -e "$XDG_STATE_HOME/go" ]; do sleep 0.02; done) & echo $! > "$XDG_STATE_HOME/left"; exit 3`;
  const plain = await box.hold('b', [], leave);
  expect(await plain.ended).toMatchObject({ code: 3 });
  expect(await box.claims('b')).toEqual([]);
  const waiting = await box.hold('a', ['--wait-all'], leave);
  await until(() => box.text('left').endsWith('\n'));
  expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
  box.write('go');
  expect(await waiting.ended).toMatchObject({ code: 3 });
  expect(await box.claims('a')).toEqual([]);
});

test.concurrent(
  'what is waited for with --wait-all is killed a grace after a signal that it ignores',
  async ({ box }) => {
    const leave = `sh -c 'trap "" TERM; echo $$ > "$XDG_STATE_HOME/left"; while :; do sleep 0.02; done' & exit 3`;
    const holder = await box.hold('a', ['--wait-all', '--grace', '500ms'], leave);
    await until(() => box.text('left').endsWith('\n') && stateOf(holder.pid) === undefined);
    expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
    holder.child.kill('SIGTERM');
    expect(await holder.ended).toMatchObject({ code: 3 });
    expect(stateOf(Number(box.text('left')))).toBeUndefined();
  },
);

describe.concurrent('a stop by the terminal', () => {
  const counting = `echo ready; while :; do echo tick >> "$XDG_STATE_HOME/log"; sleep 0.02; done`;

  test('stops the command too; both go on while the lock is theirs', async ({ box }) => {
    const holder = await box.hold('a', ['--ttl', '5m'], counting);
    await until(() => box.text('log').length > 0);
    holder.child.kill('SIGTSTP');
    await until(() => haveStopped(holder));
    const before = box.text('log');
    holder.child.kill('SIGCONT');
    await until(() => box.text('log').length > before.length);
    holder.child.kill('SIGTERM');
    expect(await holder.ended).toMatchObject({ code: 143 });
  });

  test('that outlasts the lock ends the command before it does anything', async ({ box }) => {
    // Long enough for a busy machine not to lose the lock before it is stopped.
    const holder = await box.hold('a', ['--ttl', '8s'], counting);
    await until(() => box.text('log').length > 0);
    holder.child.kill('SIGTSTP');
    await until(() => haveStopped(holder));
    const next = await box.hold('a', [], 'sleep 1000');
    const before = box.text('log');
    holder.child.kill('SIGCONT');
    expect(await holder.ended).toMatchObject({ code: 76 });
    expect(box.text('log')).toBe(before);
    next.child.kill('SIGTERM');
    await next.ended;
  });
});

test.concurrent('--no-hup ignores a hangup', async ({ box }) => {
  const holder = await box.hold('a', ['--no-hup'], `until [ -e "$XDG_STATE_HOME/go" ]; do sleep 0.02; done; echo done`);
  holder.child.kill('SIGHUP');
  holder.child.kill('SIGHUP');
  expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
  box.write('go');
  expect(await holder.ended).toMatchObject({ code: 0, stdout: 'done\n' });
});

test.concurrent('a signal that only the command knows reaches nobody else', async ({ box }) => {
  const script = `trap 'echo got; kill $!; exit 0' USR1; sleep 1000 & echo ready; wait; echo the child was ended`;
  const holder = await box.hold('a', [], script);
  await until(() => holder.stdout() === 'ready\n');
  holder.child.kill('SIGUSR1');
  expect(await holder.ended).toMatchObject({ code: 0, stdout: 'ready\ngot\n' });
});
