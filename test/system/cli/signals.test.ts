import { describe, expect } from 'vitest';
import { test } from './boxed.js';
import { until } from './sandbox.js';

const SIGNALS = [
  ['SIGTERM', 143],
  ['SIGINT', 130],
  ['SIGHUP', 129],
  ['SIGQUIT', 131],
  ['SIGUSR1', 138],
  ['SIGUSR2', 140],
] as const;

describe.concurrent.each(SIGNALS)('%s', (signal, code) => {
  const trap = `trap 'echo got; exit 9' ${signal.slice(3)}; echo ready; while :; do sleep 0.02; done`;

  test('is passed on to the command, which decides how to end', async ({ box }) => {
    const holder = await box.hold('a', [], trap);
    await until(() => holder.stdout() === 'ready\n');
    holder.child.kill(signal);
    // Its child hears it too, and the shell may say so.
    expect(await holder.ended).toMatchObject({ code: 9, stdout: 'ready\ngot\n' });
    expect(await box.claims('a')).toEqual([]);
  });

  test('ends a wait at once, and the place in line is given up', async ({ box }) => {
    await box.hold('a');
    const waiter = box.start(['run', 'a', '--', 'echo', 'never']);
    await box.waiters('a', 1);
    waiter.child.kill(signal);
    expect(await waiter.ended).toEqual({ code, stdout: '', stderr: '' });
    await box.waiters('a', 0);
  });
});

test.concurrent('a command that a passed-on signal has ended gives 128 + n', async ({ box }) => {
  const holder = await box.hold('a', [], 'exec sleep 1000');
  holder.child.kill('SIGTERM');
  expect(await holder.ended).toMatchObject({ code: 143, stderr: '' });
});

test.concurrent('a command that ignores a signal goes on, with the lock', async ({ box }) => {
  const holder = await box.hold(
    'a',
    [],
    `trap 'echo no' TERM; echo ready; until [ -e "$XDG_STATE_HOME/go" ]; do sleep 0.02; done`,
  );
  await until(() => holder.stdout() === 'ready\n');
  holder.child.kill('SIGTERM');
  await until(() => holder.stdout() === 'ready\nno\n');
  expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
  box.write('go');
  expect(await holder.ended).toMatchObject({ code: 0 });
});
