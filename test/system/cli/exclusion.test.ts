import { expect } from 'vitest';
import { test } from './boxed.js';

const SIX = [0, 1, 2, 3, 4, 5];

/** Writes when it begins and when it ends. */
const logged = (log: string): string[] => [
  '--',
  'sh',
  '-c',
  `echo start $$ >> ${log}; sleep 0.05; echo end $$ >> ${log}`,
];

/** The most that were at it at one time. */
function mostAtOnce(log: string): number {
  let now = 0;
  let most = 0;
  for (const line of log.trim().split('\n')) {
    now += line.startsWith('start') ? 1 : -1;
    most = Math.max(most, now);
  }
  return most;
}

test.concurrent('runs of one lock exclude each other', async ({ box }) => {
  const ended = await Promise.all(SIX.map(() => box.run(['run', 'a', ...logged(box.path('log'))])));
  expect(ended.map(({ code, stderr }) => `${code}${stderr}`)).toEqual(SIX.map(() => '0'));
  expect(box.text('log').match(/start/g)).toHaveLength(6);
  expect(mostAtOnce(box.text('log'))).toBe(1);
});

test.concurrent('at most as many as a semaphore has permits run at a time', async ({ box }) => {
  const ended = await Promise.all(
    SIX.map(() => box.run(['run', 'a', '--permits', '2', '--of', '5', ...logged(box.path('log'))])),
  );
  expect(ended.map(({ code }) => code)).toEqual(SIX.map(() => 0));
  expect(box.text('log').match(/start/g)).toHaveLength(6);
  expect(mostAtOnce(box.text('log'))).toBeLessThanOrEqual(2);
});

test.concurrent('shared runs go beside each other, and none beside an exclusive one', async ({ box }) => {
  const reader = await box.hold('a', ['-s']);
  expect(await box.run(['run', 'a', '-s', '-n', '--', 'true'])).toMatchObject({ code: 0 });
  expect(await box.run(['run', 'a', '-n', '--', 'true'])).toMatchObject({ code: 75 });
  reader.child.kill('SIGTERM');
  await reader.ended;
  await box.hold('a');
  expect(await box.run(['run', 'a', '-s', '-n', '--', 'true'])).toMatchObject({ code: 75 });
});

test.concurrent(
  'a lock whose command line was killed with -9 goes to the next one long before its ttl',
  async ({ box }) => {
    const holder = await box.hold('a', ['--ttl', '10m']);
    const waiter = box.start(['run', 'a', '--', 'echo', 'granted']);
    await box.waiters('a', 1);
    holder.child.kill('SIGKILL');
    // The tests' timeout is a tenth of that ttl.
    expect(await waiter.ended).toMatchObject({ code: 0, stdout: 'granted\n' });
  },
);
