/** A command that becomes another user, as sudo's do. Here that is setpriv(1) with the set-user-ID bit, which only root can make. */
import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync } from 'node:fs';
import { describe, expect, onTestFinished } from 'vitest';
import { test } from './boxed.js';
import { MAIN, type Sandbox, until } from './sandbox.js';

const NOBODY = 65_534;
const as = (user: number): string[] => [`--reuid=${user}`, `--regid=${user}`, '--clear-groups'];

/** Whether nobody can run us at all: Node or this folder may be in a home that is closed to others. */
const isPossible =
  process.platform === 'linux' &&
  process.getuid?.() === 0 &&
  spawnSync('setpriv', [...as(NOBODY), process.execPath, MAIN, '--version']).status === 0;

/** The file of a program that makes root of anybody. */
function makeBecome(box: Sandbox): string {
  const become = box.path('become');
  copyFileSync('/usr/bin/setpriv', become);
  chmodSync(become, 0o4755);
  chmodSync(box.folder, 0o755);
  chownSync(box.folder, NOBODY, NOBODY);
  return become;
}

describe.runIf(isPossible).concurrent('a command of another user can’t be stopped, and that is said', () => {
  test.for([
    ['shows', 'true'],
    // A mount of its own: options of the one that is there would be everybody's.
    ['hides', 'mount -t proc -o hidepid=2 proc /proc'],
  ] as const)('where /proc %s the processes of others', async ([, mount], { box }) => {
    const become = makeBecome(box);
    box.write('work.sh', `echo $$ > ${box.path('pid')}; while :; do sleep 0.05; done`);
    const url = `sqlite:${box.path('locks.db')}`;
    const run = ['run', 'a', '--url', url, '--ttl', '4s', '--grace', '500ms', '--', become, ...as(0)];
    const holdfast = ['setpriv', ...as(NOBODY), process.execPath, MAIN, ...run, 'sh', box.path('work.sh')];
    box.write('pid');
    const holder = box.startCommand('unshare', ['-m', 'sh', '-c', `${mount} && exec "$0" "$@"`, ...holdfast]);
    await until(() => box.text('pid').endsWith('\n'));
    const pid = Number(box.text('pid'));
    expect(pid).toBeGreaterThan(1);
    onTestFinished(() => void process.kill(pid, 'SIGKILL'));
    const { stdout } = await box.run(['inspect', 'a', '--json', '--url', url]);
    const [, id] = /"id": ?"([^"]+)"/.exec(stdout)!;
    expect(await box.run(['evict', 'a', id!, '--url', url])).toMatchObject({ code: 0 });
    const { code, stderr } = await holder.ended;
    expect(code).toBe(77);
    expect(stderr).toMatch(/write\. process(es)? .* of the command could not be stopped/);
    // The lock went after one ttl, as that of a holder that does not answer.
    expect(await box.run(['run', 'a', '--url', url, '--', 'true'])).toMatchObject({ code: 0 });
  });
});
