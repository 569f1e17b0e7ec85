import { DatabaseSync } from '@photostructure/sqlite';
import { expect } from 'vitest';
import type { LineView } from '../../../src/index.js';
import { test } from './boxed.js';
import { until } from './sandbox.js';

test.concurrent('ls has a line for each claim, of all locks or of those with a prefix', async ({ box }) => {
  await box.hold('db:b');
  await box.hold('db:a', ['-s']);
  await box.hold('gpu', ['--permits', '2', '--of', '4']);
  box.start(['run', 'db:b', '--', 'true']);
  await box.waiters('db:b', 1);
  const { code, stdout } = await box.run(['ls']);
  expect(code).toBe(0);
  const rows = stdout
    .trim()
    .split('\n')
    .map((line) => line.split(/ {2,}/));
  expect(rows.map((row) => row.slice(0, 3))).toEqual([
    ['NAME', 'KIND', 'STATE'],
    ['db:a', 'shared', 'held'],
    ['db:b', 'lock', 'held'],
    ['db:b', 'lock', 'waiting'],
    ['gpu', 'semaphore:2/4', 'held'],
  ]);
  expect(rows[2]).toEqual([
    'db:b',
    'lock',
    'held',
    expect.stringMatching(/^sh@.+:\d+$/),
    expect.stringMatching(/^\d+m?s$/),
  ]);
  expect(rows[3]![3]).toMatch(/^true@/);
  expect((await box.run(['ls', 'db:'])).stdout).not.toContain('gpu');
  expect(await box.run(['ls', 'nothing'])).toEqual({ code: 0, stdout: '', stderr: '' });
});

test.concurrent('ls and inspect give JSON, with tokens as strings', async ({ box }) => {
  const holder = await box.hold('a', [], 'echo "$HOLDFAST_TOKEN"; sleep 1000');
  await until(() => holder.stdout() !== '');
  const [listed, inspected, none] = await Promise.all([
    box.run(['ls', '--json']),
    box.run(['inspect', 'a', '--json']),
    box.run(['inspect', 'free', '--json']),
  ]);
  const lines = JSON.parse(listed.stdout) as LineView[];
  expect(lines).toMatchObject([
    { name: 'a', kind: 'lock', claims: [{ state: 'held', token: holder.stdout().trim() }] },
  ]);
  expect(JSON.parse(inspected.stdout)).toEqual(lines);
  expect(JSON.parse(none.stdout)).toEqual([]);
});

test.concurrent('inspect shows each claim with its id and token', async ({ box }) => {
  await box.hold('a');
  await box.hold('a', ['--of', '2']);
  const { code, stdout } = await box.run(['inspect', 'a']);
  const [claim] = await box.claims('a');
  expect(code).toBe(0);
  expect(stdout.trim().split('\n')).toHaveLength(3);
  expect(stdout).toContain(`${claim!.id}  lock`);
  expect(stdout).toContain(`  ${claim!.token}  `);
  expect(await box.run(['inspect', 'free'])).toEqual({ code: 0, stdout: '"free" is free\n', stderr: '' });
});

test.concurrent('evict says whether there was such a claim', async ({ box }) => {
  await box.hold('a');
  const waiter = box.start(['run', 'a', '--', 'echo', 'never']);
  await box.waiters('a', 1);
  const { id } = (await box.claims('a')).find(({ state }) => state === 'waiting')!;
  expect(await box.run(['evict', 'a', 'nobody'])).toMatchObject({ code: 1 });
  expect(await box.run(['evict', 'b', id])).toMatchObject({ code: 1 });
  const { code, stdout } = await box.run(['evict', 'a', id, '--reason', 'too many', '--json']);
  expect({ code, said: JSON.parse(stdout) as unknown }).toEqual({
    code: 0,
    said: { name: 'a', claim: id, evicted: true },
  });
  expect(await waiter.ended).toMatchObject({ code: 76, stdout: '', stderr: expect.stringContaining('too many') });
});

test.concurrent('nothing that stands in the store drives the terminal of who looks', async ({ box }) => {
  // Before its first beat, which takes away what the holder does not know of.
  await box.hold('a', ['--ttl', '10m']);
  const hostile = '\u001b]0;pwned\u0007\u001b[2J\u009b31m\u202e';
  const file = new DatabaseSync(box.file);
  file
    .prepare(
      `INSERT INTO claim (session, id, token, namespace, kind, name, serial, weight, capacity, held, since, note)
       SELECT session, ?, token + 1, namespace, kind, name, serial, weight, capacity, 0, since, ? FROM claim`,
    )
    .run(`id${hostile}`, JSON.stringify({ label: `label${hostile}` }));
  file.close();
  for (const command of [['ls'], ['inspect', 'a'], ['ls', '--json'], ['inspect', 'a', '--json']]) {
    const { code, stdout } = await box.run(command);
    expect([code, /[^\P{Cc}\n]|\p{Bidi_Control}/u.test(stdout)]).toEqual([0, false]);
    expect(stdout).toContain('label');
  }
  const ids = (JSON.parse((await box.run(['ls', '--json'])).stdout) as LineView[])[0]!.claims.map(({ id }) => id);
  expect(ids).toContain(`id${hostile}`);
});

test.concurrent(
  'what all commands take may stand before the command, and what does not is told where it goes',
  async ({ box }) => {
    const url = `sqlite:${box.path('other.db')}`;
    expect(await box.run(['--json', '--url', url, 'ls'])).toEqual({ code: 0, stdout: '[]\n', stderr: '' });
    expect(await box.run([`--url=${url}`, 'inspect', 'a'])).toEqual({ code: 0, stdout: '"a" is free\n', stderr: '' });
    expect(await box.run(['--reason', 'x', 'evict'])).toEqual({
      code: 64,
      stdout: '',
      stderr: 'holdfast: options stand behind the command, as in: holdfast ls "--reason"; see holdfast --help\n',
    });
  },
);
