/** `holdfast run`, and what all commands have in common. Starting processes is most of it, so they start beside each other. */
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { describe, expect } from 'vitest';
import { stateFolder } from '../../../src/cli/place.js';
import { test } from './boxed.js';
import { MAIN, until } from './sandbox.js';

describe.concurrent('the exit code', () => {
  test.for([
    ['exit 0', 0],
    ['exit 7', 7],
    ['kill -TERM $$', 143],
    ['kill -KILL $$', 137],
  ] as const)('of %j is the command’s, %i', async ([script, code], { box }) => {
    expect(await box.run(['run', 'a', '--', 'sh', '-c', script])).toEqual({ code, stdout: '', stderr: '' });
  });

  test('is 127 for a command that does not exist, and 126 for one that can’t be executed', async ({ box }) => {
    writeFileSync(box.path('data'), 'no program', { mode: 0o600 });
    expect(await box.run(['run', 'a', '--', box.path('nothing')])).toMatchObject({ code: 127 });
    expect(await box.run(['run', 'a', '--', box.path('data')])).toMatchObject({ code: 126 });
    expect(await box.claims('a')).toEqual([]);
  });

  test('is 75, or what --busy-exit says, for a lock that is busy', async ({ box }) => {
    await box.hold('a');
    const none = await box.run(['run', 'a', '-n', '--', 'true']);
    const [short, chosen] = await Promise.all([
      // Long enough to open the file in: an engine that has not answered by then was not reached.
      box.run(['run', 'a', '-w', '5s', '--', 'true']),
      box.run(['run', 'a', '-n', '--busy-exit', '0', '--', 'false']),
    ]);
    expect(none).toMatchObject({
      code: 75,
      stderr: expect.stringMatching(/^holdfast: "a" is busy: held by sh@\S+ for \S+\n$/),
    });
    expect(short).toMatchObject({ code: 75, stderr: expect.stringMatching(/^holdfast: .* \(waited 5s\)\n$/) });
    expect(chosen.code).toBe(0);
  });

  test('is 69 for an engine that can’t be reached', async ({ box }) => {
    writeFileSync(box.path('file'), '');
    const url = `sqlite:${box.path('file')}/locks.db`;
    const ended = await Promise.all([
      box.run(['run', 'a', '-n', '--', 'true'], { env: { HOLDFAST_URL: url } }),
      box.run(['run', 'a', '--url', url, '-w', '1s', '--', 'true']),
      box.run(['ls', '--url', url]),
      box.run(['ls'], { env: { XDG_STATE_HOME: box.path('file') } }),
    ]);
    for (const { code, stderr } of ended) {
      expect(code).toBe(69);
      expect(stderr).toMatch(/^holdfast: .+\n$/);
    }
  });

  test.for([
    [[]],
    [['walk']],
    [['help', 'walk']],
    [['run']],
    [['run', 'a']],
    [['run', 'a', 'true']],
    [['run', 'a', 'b', '--', 'true']],
    [['run', 'a', '--']],
    [['run', '', '--', 'true']],
    [['run', 'a', '--bogus', '--', 'true']],
    [['run', 'a', '-w', '30', '--', 'true']],
    [['run', 'a', '-w', '1s', '-n', '--', 'true']],
    [['run', 'a', '-s', '--of', '3', '--', 'true']],
    [['run', 'a', '--permits', '2', '--', 'true']],
    [['run', 'a', '--permits', '4', '--of', '3', '--', 'true']],
    [['run', 'a', '--ttl', '1ms', '--', 'true']],
    [['run', 'a', '--ttl', '10s', '--grace', '9s', '--', 'true']],
    [['run', 'a', '--busy-exit', '256', '--', 'true']],
    [['run', 'a', '--url', 'nonsense://x', '--', 'true']],
    [['inspect']],
    [['evict', 'a']],
    [['ls', 'a', 'b']],
  ] as const)('is 64 for %j, with one line that says why', async ([args], { box }) => {
    const { code, stdout, stderr } = await box.run(args);
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    expect(stderr).toMatch(/^holdfast: .+\n$/);
  });
});

describe.concurrent('the command', () => {
  test('has HOLDFAST_URL, unless it is told to hide it', async ({ box }) => {
    const env = { HOLDFAST_URL: `sqlite:${box.path('other.db')}` };
    const command = ['--', 'sh', '-c', 'echo "${HOLDFAST_URL-none} $HOLDFAST_LOCK"'];
    const [shown, hidden] = await Promise.all([
      box.run(['run', 'a', ...command], { env }),
      box.run(['run', 'b', '--hide-url', ...command], { env }),
    ]);
    expect([shown.stdout, hidden.stdout]).toEqual([`${env.HOLDFAST_URL} a\n`, 'none b\n']);
  });

  test('has the lock’s name and token in its environment, and a later one has a larger token', async ({ box }) => {
    const show = ['run', 'a b', '--', 'sh', '-c', 'echo "$HOLDFAST_LOCK $HOLDFAST_TOKEN"'];
    const first = await box.run(show);
    const second = await box.run(show);
    expect(first.stdout).toMatch(/^a b \d+\n$/);
    expect(BigInt(second.stdout.slice(4))).toBeGreaterThan(BigInt(first.stdout.slice(4)));
  });

  test('has stdin, stdout and stderr to itself', async ({ box }) => {
    const input = 'line\n'.repeat(100_000);
    const ended = await box.run(['run', 'a', '--', 'sh', '-c', 'cat; echo done >&2'], { stdin: input });
    expect(ended.stdout === input).toBe(true);
    expect({ code: ended.code, stderr: ended.stderr }).toEqual({ code: 0, stderr: 'done\n' });
  });

  test('has all arguments behind -- to itself', async ({ box }) => {
    const ended = await box.run(['run', 'a', '--', 'echo', '--help', '-n', '--', '--json']);
    expect(ended).toEqual({ code: 0, stdout: '--help -n -- --json\n', stderr: '' });
  });

  test('holds the lock until it has ended, and not longer', async ({ box }) => {
    const holder = await box.hold('a', [], 'cat > /dev/null; until [ -e "$XDG_STATE_HOME/go" ]; do sleep 0.02; done');
    expect(await box.claims('a')).toMatchObject([{ state: 'held' }]);
    writeFileSync(box.path('go'), '');
    expect(await holder.ended).toMatchObject({ code: 0, stderr: '' });
    expect(await box.claims('a')).toEqual([]);
  });
});

/** It does not wait: one that is not refused for what it is says that the lock is busy. */
const nested = (...args: string[]): string[] => ['--', process.execPath, MAIN, 'run', '-n', ...args];

describe.concurrent('a run inside a run', () => {
  test('of the same lock is refused at once', async ({ box }) => {
    const ended = await box.run(['run', 'a', ...nested('a', '--', 'true')]);
    expect(ended).toMatchObject({ code: 64, stderr: expect.stringMatching(/^holdfast: "a" .*wait for itself\n$/) });
  });

  test('of the same lock is refused through another lock, and in shared mode', async ({ box }) => {
    const through = await box.run(['run', 'a', ...nested('b', ...nested('a', '--', 'true'))]);
    const shared = await box.run(['run', 'a', '-s', ...nested('a', '-s', '--', 'true')]);
    const written = box.file.replace('/holdfast/', '/./holdfast/../holdfast/');
    const spelt = await box.run(['run', 'a', ...nested('a', '--url', `sqlite:${written}`, '--', 'true')]);
    expect([through.code, shared.code, spelt.code]).toEqual([64, 64, 64]);
  });

  test('that has ended is one no more, for what it left behind', async ({ box }) => {
    const again = `'${process.execPath}' '${MAIN}' run a -n -- echo ran > ${box.path('log')} 2>&1`;
    box.write(
      'daemon.sh',
      `until [ -e ${box.path('go')} ]; do sleep 0.02; done; ${again}; echo $? >> ${box.path('log')}`,
    );
    expect(
      await box.run(['run', 'a', '--', 'sh', '-c', `sh ${box.path('daemon.sh')} > /dev/null 2>&1 &`]),
    ).toMatchObject({ code: 0 });
    box.write('go');
    await until(() => /\d\n$/.test(box.text('log')));
    expect(box.text('log')).toBe('ran\n0\n');
  });

  test('of another lock, in another place or of a semaphore of that name is granted', async ({ box }) => {
    const ended = await Promise.all([
      box.run(['run', 'a', ...nested('b', '--', 'true')]),
      box.run(['run', 'c', ...nested('c', '--url', `sqlite:${box.path('other.db')}`, '--', 'true')]),
      box.run(['run', 'd', ...nested('d', '--of', '2', '--', 'true')]),
    ]);
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 0]);
  });
});

test.concurrent('a reader of stdout that goes away does not change the exit code', async ({ box }) => {
  const text = `{ '${process.execPath}' '${MAIN}' run a -- sh -c 'sleep 0.1; exit 7'; echo $? >&2; } | true`;
  expect(await box.startCommand('sh', ['-c', text]).ended).toMatchObject({ stderr: '7\n' });
});

describe.concurrent('without a URL', () => {
  test('the locks are in one file, also where HOME is empty', () => {
    const { homedir } = userInfo();
    expect(stateFolder({}, '')).toBe(join(homedir, '.local', 'state', 'holdfast'));
    expect(stateFolder({ XDG_STATE_HOME: 'relative' }, '/home/ada')).toBe('/home/ada/.local/state/holdfast');
    expect(stateFolder({ XDG_STATE_HOME: '/var/state' }, '')).toBe('/var/state/holdfast');
  });

  test('the locks are in a folder that only the user can read', async ({ box }) => {
    await box.run(['run', 'a', '--', 'true']);
    expect(existsSync(box.file)).toBe(true);
    expect(statSync(dirname(box.file)).mode & 0o777).toBe(0o700);
  });

  test('a state directory that is not absolute is ignored', async ({ box }) => {
    const env = { XDG_STATE_HOME: 'relative', HOME: box.path('home') };
    expect(await box.run(['run', 'a', '--', 'true'], { env })).toMatchObject({ code: 0 });
    expect(existsSync(box.path('home/.local/state/holdfast/locks.db'))).toBe(true);
  });
});

describe.concurrent('what it says', () => {
  test('is one line of JSON with --json', async ({ box }) => {
    await box.hold('a');
    const { stderr } = await box.run(['run', 'a', '-n', '--json', '--', 'true']);
    expect(JSON.parse(stderr)).toMatchObject({ error: 'HOLDFAST_TIMEOUT', exit: 75 });
  });

  test('is a warning where the locks exclude nobody', async ({ box }) => {
    const { code, stderr } = await box.run(['run', 'a', '--url', 'memory:', '--', 'true']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/^holdfast: .*exclude nobody\n$/) });
  });

  test('never has credentials in it', async ({ box }) => {
    const url = 'nosuch://user:hunter2@host/0';
    const ended = await Promise.all([
      box.run(['run', 'a', '--url', url, '--', 'true']),
      box.run(['run', 'a', '-w', url, '--', 'true']),
      box.run(['run', 'a', `--${url}`, '--', 'true']),
      box.run([url]),
      box.run(['ls'], { env: { HOLDFAST_URL: url } }),
    ]);
    for (const { code, stderr } of ended) {
      expect(code).toBe(64);
      expect(stderr).not.toContain('hunter2');
    }
  });

  test('is help, and the version', async ({ box }) => {
    const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as {
      version: string;
    };
    expect(await box.run(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
    const [all, run, same] = await Promise.all([
      box.run(['--help']),
      box.run(['help', 'run']),
      box.run(['run', '--help']),
    ]);
    expect(all.stdout).toContain('holdfast evict <name> <claim-id>');
    expect(run.stdout).toContain('Exit codes');
    expect(same).toEqual(run);
    expect(Math.max(...(all.stdout + run.stdout).split('\n').map(({ length }) => length))).toBeLessThanOrEqual(88);
  });
});

test.concurrent(
  'a lock file that is busy for however long is waited for, unless a wait has an end',
  async ({ box }) => {
    await box.run(['run', 'a', '--', 'true']);
    const database = new DatabaseSync(box.file);
    database.exec('PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE');
    const endless = box.start(['run', 'a', '--ttl', '1s', '--', 'echo', 'granted']);
    // By the time that this one has given up, one that waits for one ttl only would have, too.
    expect(await box.run(['run', 'a', '--ttl', '1s', '-w', '8s', '--', 'true'])).toMatchObject({ code: 69 });
    expect(endless.child.exitCode).toBe(null);
    database.exec('ROLLBACK');
    database.close();
    expect(await endless.ended).toEqual({ code: 0, stdout: 'granted\n', stderr: '' });
  },
);
