/** At a terminal. util-linux’s script(1) makes one; elsewhere it takes other options. */
import { describe, expect } from 'vitest';
import { test } from './boxed.js';
import { MAIN, type Sandbox, type Started, until } from './sandbox.js';

function startAtTerminal(box: Sandbox, command: string): Started {
  // exec: a shell that stayed in between (dash does, bash does not) would die of the Ctrl-C itself and hide our exit code.
  const text = `exec '${process.execPath}' '${MAIN}' ${command}`;
  return box.startCommand('script', ['-qefc', text, '/dev/null'], { interactive: true });
}

/** Writes down every signal that it gets. Not a shell, for which two of a kind in quick succession are one. */
const SCRIBE = `
import { appendFileSync } from 'node:fs';
const note = (signal) => appendFileSync(process.argv[2], signal + '\\n');
for (const signal of ['SIGINT', 'SIGUSR1']) process.on(signal, note);
process.on('SIGTERM', () => process.exit(5));
setInterval(() => {}, 1_000);
console.log('ready');
`;

describe.runIf(process.platform === 'linux').concurrent('at a terminal', () => {
  test('a wait says who holds the lock, and the line is gone when it is granted', async ({ box }) => {
    const holder = await box.hold('a');
    const waiter = startAtTerminal(box, 'run a -- echo granted');
    await until(() => /holdfast: waiting for "a": held by sh@\S+ for \S+/.test(waiter.stdout()));
    expect(waiter.stdout()).not.toContain('\n');
    holder.child.kill('SIGTERM');
    const { code, stdout } = await waiter.ended;
    expect(code).toBe(0);
    expect(stdout.endsWith('\r\x1b[Kgranted\r\n')).toBe(true);
  });

  test('a wait away from it says nothing', async ({ box }) => {
    const holder = await box.hold('a');
    const waiter = box.start(['run', 'a', '--', 'true']);
    await box.waiters('a', 1);
    // By the time that one who came later says who is in the way, it would have said so too.
    const later = startAtTerminal(box, 'run a -- true');
    await until(() => later.stdout().includes('waiting for'));
    holder.child.kill('SIGTERM');
    expect(await waiter.ended).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await later.ended).toMatchObject({ code: 0 });
  });

  test('Ctrl-C reaches the command once', async ({ box }) => {
    box.write('scribe.mjs', SCRIBE);
    const run = startAtTerminal(box, `run a -- '${process.execPath}' '${box.path('scribe.mjs')}' '${box.path('log')}'`);
    await until(() => run.stdout().includes('ready'));
    run.child.stdin!.write('\x03');
    await until(() => box.text('log') !== '');
    const [held] = await box.claims('a');
    expect(held).toMatchObject({ state: 'held' });
    const pid = Number(held!.label.split(':').at(-1));
    // What is passed on comes in order: behind this one, there is no second Ctrl-C on its way.
    process.kill(pid, 'SIGUSR1');
    await until(() => box.text('log').includes('SIGUSR1'));
    expect(box.text('log')).toBe('SIGINT\nSIGUSR1\n');
    process.kill(pid, 'SIGTERM');
    expect(await run.ended).toMatchObject({ code: 5 });
  });

  test('Ctrl-C ends a wait', async ({ box }) => {
    await box.hold('a');
    const waiter = startAtTerminal(box, 'run a -- echo never');
    await until(() => waiter.stdout().includes('waiting for'));
    waiter.child.stdin!.write('\x03');
    expect(await waiter.ended).toMatchObject({ code: 130 });
    await box.waiters('a', 0);
  });
});
