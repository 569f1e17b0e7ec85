/** At a terminal. util-linux’s script(1) makes one; elsewhere it takes other options. */
import { readFileSync } from 'node:fs';
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
for (const signal of ['SIGINT', 'SIGQUIT', 'SIGUSR1']) process.on(signal, note);
process.on('SIGTERM', () => process.exit(5));
setInterval(() => {}, 1_000);
console.log('ready');
`;

/** The one that tells us what the keyboard sends; after a Ctrl-C there is another. */
function witnessOf(pid: number): string {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim().split(' ');
  return children.find((child) => readFileSync(`/proc/${child}/comm`, 'latin1') === 'cat\n') ?? '';
}

/** Work as a job of a shell that is in the foreground of the terminal. Then holdfast is not. */
function jobOf(box: Sandbox): string {
  box.write('work.sh', `trap '' TERM HUP INT; while :; do echo first >> ${box.path('log')}; sleep 0.02; done`);
  return `set -m; sh ${box.path('work.sh')} & wait`;
}

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
    const [held] = await box.claims('a');
    const pid = Number(held!.label.split(':').at(-1));
    const witness = witnessOf(pid);
    run.child.stdin!.write('\x03');
    await until(() => box.text('log') !== '' && !['', witness].includes(witnessOf(pid)));
    expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
    // There is a new witness, so the Ctrl-C has been judged; and what is passed on comes in order.
    process.kill(pid, 'SIGUSR1');
    await until(() => box.text('log').includes('SIGUSR1'));
    expect(box.text('log')).toBe('SIGINT\nSIGUSR1\n');
    process.kill(pid, 'SIGTERM');
    expect(await run.ended).toMatchObject({ code: 5 });
  });

  test.for(['SIGINT', 'SIGQUIT'] as const)(
    'a %s that is sent to holdfast alone reaches the command, once',
    async (signal, { box }) => {
      box.write('scribe.mjs', SCRIBE);
      const log = box.path('log');
      const run = startAtTerminal(box, `run a -- '${process.execPath}' '${box.path('scribe.mjs')}' '${log}'`);
      await until(() => run.stdout().includes('ready'));
      const [held] = await box.claims('a');
      const pid = Number(held!.label.split(':').at(-1));
      process.kill(pid, signal);
      await until(() => box.text('log') !== '');
      const witness = witnessOf(pid);
      // And after a Ctrl-C, which is the command's already, it does again.
      run.child.stdin!.write('\x03');
      await until(() => box.text('log') === `${signal}\nSIGINT\n`);
      await until(() => {
        // Until there is another witness, it is taken for the keyboard's.
        if (!['', witness].includes(witnessOf(pid))) process.kill(pid, signal);
        return box.text('log').startsWith(`${signal}\nSIGINT\n${signal}\n`);
      });
      process.kill(pid, 'SIGTERM');
      expect(await run.ended).toMatchObject({ code: 5 });
    },
  );

  test('Ctrl-C reaches a command that makes a process group of its own', async ({ box }) => {
    const log = box.path('log');
    box.write('work.sh', `trap 'echo bye >> ${log}; exit 0' INT; echo ready; while :; do sleep 0.02; done`);
    const run = startAtTerminal(box, `run a --ttl 1m --grace 30s -- timeout 1000 sh ${box.path('work.sh')}`);
    await until(() => run.stdout().includes('ready'));
    run.child.stdin!.write('\x03');
    await run.ended;
    expect(box.text('log')).toBe('bye\n');
  });

  test('a loss ends what the command started, too, and a pipe leaves the terminal to it', async ({ box }) => {
    const log = box.path('log');
    box.write('work.sh', `trap '' TERM HUP INT; while :; do echo first >> ${log}; sleep 0.02; done`);
    box.write(
      'command.sh',
      `[ -w /dev/tty ] && echo tty > ${box.path('tty')}; timeout 1000 sh ${box.path('work.sh')}; sleep 1000`,
    );
    const text = `echo | exec '${process.execPath}' '${MAIN}' run a --ttl 12s --grace 500ms -- sh ${box.path('command.sh')}`;
    const run = box.startCommand('script', ['-qefc', text, '/dev/null'], { interactive: true });
    await until(() => box.text('log') !== '');
    const next = box.start(['run', 'a', '--', 'sh', '-c', `echo second >> ${log}; sleep 0.5`]);
    await box.waiters('a', 1);
    await box.run(['evict', 'a', (await box.claims('a'))[0]!.id]);
    expect(await next.ended).toMatchObject({ code: 0 });
    expect(box.text('log').endsWith('second\n')).toBe(true);
    expect(box.text('tty')).toBe('tty\n');
    await run.ended;
  });

  test.for([
    ['Ctrl-C', jobOf, (run: Started) => run.child.stdin!.write('\x03')],
    [
      'a terminal that is closed',
      (box: Sandbox) => `timeout --foreground 1000 sh -c '${jobOf(box)}'; exit 0`,
      (run: Started) => run.child.kill('SIGKILL'),
    ],
  ] as const)('%s that only a part of the command hears leaves nobody at work', async ([, script, end], { box }) => {
    box.write('command.sh', script(box));
    const text = `'${process.execPath}' '${MAIN}' run a --ttl 1m --grace 500ms -- sh ${box.path('command.sh')}; exit $?`;
    const run = box.startCommand('script', ['-qefc', text, '/dev/null'], { interactive: true });
    await until(() => box.text('log') !== '');
    const next = box.start(['run', 'a', '--', 'sh', '-c', `echo second >> ${box.path('log')}; sleep 0.5`]);
    await box.waiters('a', 1);
    end(run);
    expect(await next.ended).toMatchObject({ code: 0 });
    expect(box.text('log').endsWith('second\n')).toBe(true);
    await run.ended;
  });

  test('Ctrl-Z stops work in another process group, too, and fg lets it go on', async ({ box }) => {
    const log = box.path('log');
    box.write('work.sh', `echo $$ > ${box.path('worker')}; while :; do echo tick >> ${log}; sleep 0.02; done`);
    const shell = box.startCommand('script', ['-qefc', 'bash --norc --noprofile -i', '/dev/null'], {
      interactive: true,
    });
    const type = (text: string): boolean => shell.child.stdin!.write(text);
    type(`'${process.execPath}' '${MAIN}' run a --ttl 5m -- sh -c 'timeout 1000 sh ${box.path('work.sh')}'\n`);
    await until(() => box.text('log') !== '');
    const [held] = await box.claims('a');
    const pids = [Number(held!.label.split(':').at(-1)), Number(box.text('worker'))];
    type('\x1a');
    await until(() => pids.every((pid) => /^State:\tT/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'))));
    const before = box.text('log');
    type('fg\n');
    await until(() => box.text('log').length > before.length);
    process.kill(pids[0]!, 'SIGTERM');
    await box.waiters('a', 0);
    await until(async () => (await box.claims('a')).length === 0);
    type('exit\n');
    await shell.ended;
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
