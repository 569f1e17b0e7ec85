/** At a terminal. util-linux’s script(1) makes one; elsewhere it takes other options. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MAIN, Sandbox, type Started, until } from './sandbox.js';

let box: Sandbox;

beforeEach(() => {
  box = new Sandbox();
});

afterEach(() => box[Symbol.asyncDispose]());

function startAtTerminal(command: string): Started {
  // exec: a shell that stayed in between (dash does, bash does not) would die of the Ctrl-C itself and hide our exit code.
  const text = `exec '${process.execPath}' '${MAIN}' ${command}`;
  return box.startCommand('script', ['-qefc', text, '/dev/null'], { interactive: true });
}

describe.runIf(process.platform === 'linux')('at a terminal', () => {
  test('a wait says who holds the lock, and the line is gone when it is granted', async () => {
    const holder = await box.hold('a');
    const waiter = startAtTerminal('run a -- echo granted');
    await until(() => /holdfast: waiting for "a": held by sh@\S+ for \S+/.test(waiter.stdout()));
    expect(waiter.stdout()).not.toContain('\n');
    holder.child.kill('SIGTERM');
    const { code, stdout } = await waiter.ended;
    expect(code).toBe(0);
    expect(stdout.endsWith('\r\x1b[Kgranted\r\n')).toBe(true);
  });

  test('Ctrl-C reaches the command once', async () => {
    const log = box.path('log');
    const script = `trap "echo got >> ${log}" INT; trap "exit 5" TERM; echo ready; while :; do sleep 0.02; done`;
    const run = startAtTerminal(`run a -- sh -c '${script}'`);
    await until(() => run.stdout().includes('ready'));
    run.child.stdin!.write('\x03');
    await until(() => box.text('log') !== '');
    // Long enough for a second one to come.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(box.text('log')).toBe('got\n');
    expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
    const pid = Number((await box.claims('a'))[0]!.label.split(':').at(-1));
    process.kill(pid, 'SIGTERM');
    expect(await run.ended).toMatchObject({ code: 5 });
  });

  test('Ctrl-C ends a wait', async () => {
    await box.hold('a');
    const waiter = startAtTerminal('run a -- echo never');
    await until(() => waiter.stdout().includes('waiting for'));
    waiter.child.stdin!.write('\x03');
    expect(await waiter.ended).toMatchObject({ code: 130 });
    await box.waiters('a', 0);
  });
});

test('without a terminal a wait says nothing', async () => {
  const holder = await box.hold('a');
  const waiter = box.start(['run', 'a', '--', 'true']);
  await box.waiters('a', 1);
  // Longer than it takes until the first line is shown.
  await new Promise((resolve) => setTimeout(resolve, 500));
  holder.child.kill('SIGTERM');
  expect(await waiter.ended).toEqual({ code: 0, stdout: '', stderr: '' });
});
